"""What a run prints at its end: what was played, and what the clients did."""

from collections import Counter
from collections.abc import Iterator

from tests.chaos.check import claims
from tests.chaos.journal import printed
from tests.chaos.run import Outcome

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
    yield f"violations: {len(outcome.violations)}"
    for violation in outcome.violations[:PRINTED_VIOLATIONS]:
        yield f"\n{violation.at - outcome.start:.3f} s: {violation.name}: {violation.text}; the steps before:"
        yield from printed(outcome.before(violation), outcome.start)
