"""What a run prints at its end: what was played, what the clients did, and for how long locks had no owner."""

from collections import Counter
from collections.abc import Iterator, Sequence

from tests.chaos import workload
from tests.chaos.check import Claim, claims, without_owner
from tests.chaos.journal import printed
from tests.chaos.run import Outcome

EXCLUSIVE = (workload.LOCK, workload.SHORT_WAITS, workload.ELECTION)
PRINTED_VIOLATIONS = 5


def report(outcome: Outcome) -> Iterator[str]:
    """Yield the lines."""
    records = outcome.records
    yield "faults that were played:"
    played = Counter(str(record["fault"]).partition(" for ")[0] for record in records if record.what == "FAULT")
    kinds = Counter(fault.kind for fault in outcome.faults)
    yield "  " + ", ".join(f"{kind}: {count}" for kind, count in sorted(kinds.items()))
    skipped = sum(record.what == "skipped" for record in records)
    yield f"  {sum(played.values())} in all, {skipped} skipped because there was another one, or no such server"
    held = claims(records)
    done = Counter(record.what for record in records)
    ended = done["session ended"]
    yield f"{len(held)} leases, {done['lost']} of them lost; {ended} sessions ended under a client that lived"
    yield (
        f"store: {done['stored']} writes accepted, {done['turned away']} stale ones refused; guarded transactions:"
        f" {done['guarded']} carried out, {done['guard refused']} refused"
    )
    yield (
        f"queues: {done['put']} items put, {done['got']} taken, {done['handled']} claimed and handled;"
        f" counter: {done['added']} additions"
    )
    errors = Counter(record["error"] for record in records if record.what == "error")
    yield "errors that clients met: " + ", ".join(f"{name}: {count}" for name, count in sorted(errors.items()))
    yield "time without an owner:"
    for name in EXCLUSIVE:
        yield distribution(name, [claim for claim in held if claim.name == name])
    yield f"violations: {len(outcome.violations)}"
    for violation in outcome.violations[:PRINTED_VIOLATIONS]:
        yield f"\n{violation.at - outcome.start:.3f} s: {violation.name}: {violation.text}; the steps before:"
        yield from printed(outcome.before(violation), outcome.start)


def distribution(name: str, held: Sequence[Claim]) -> str:
    """Return the line for one lock."""
    gaps = sorted(without_owner(held))
    if not gaps:
        return f"  {name:10} no change of owners"
    quantiles = "  ".join(
        f"{label} {gaps[min(len(gaps) - 1, int(share * len(gaps)))] * 1000:8.1f}"
        for label, share in (("median", 0.5), ("90 %", 0.9), ("99 %", 0.99))
    )
    return f"  {name:10} {len(gaps):6} changes of owner; ms: {quantiles}  longest {gaps[-1] * 1000:8.1f}"
