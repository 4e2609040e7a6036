"""Checks the history of a run against the promises of the recipes.  Pure: takes records, returns violations.

docs/reliability.md lists the promises.  Everything here is judged by what clients knew for certain, so that a slow or
stopped process never looks like a violation:

- A holder *claims* a lock from the moment at which `acquire` has returned, until it begins to release it; without a
  release, until the moment to which the lease has called itself certain.  The claim of a process that was killed or
  stopped lasts to that moment too.
- A lease that was not certain when its process looked at it for the first time claims nothing.
"""

from bisect import insort
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tests.chaos.journal import Record, in_order

# Errors that clients meet under faults, by the names of their classes.
EXPECTED_ERRORS = frozenset({"ConnectionLostError", "SessionExpiredError", "LockLostError", "TimeoutError"})


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken promise: seen at the moment `at`, of the lock or queue `name`."""

    at: float
    name: str
    text: str


@dataclass(slots=True)
class Claim:
    """One lease as its holder has claimed it, from `start` to `end`; `mode` is "write" unless it is shared."""

    name: str
    author: str
    lease: int
    mode: str
    token: int
    start: float
    end: float

    def __str__(self) -> str:
        return f"client {self.author} (token {self.token:#x})"


@dataclass(frozen=True, slots=True)
class Expected:
    """What a run has set up: which names are semaphores, with how many permits, and which are queues."""

    permits: Mapping[str, int]
    queues: frozenset[str] = frozenset()  # of which items are taken at most once
    claim_queues: frozenset[str] = frozenset()  # of which items are claimed


def check(history: Iterable[Record], expected: Expected) -> list[Violation]:
    """Return all violations, in the order of their moments."""
    records = in_order(history)
    by_name: dict[str, list[Claim]] = defaultdict(list)
    for claim in claims(records):
        by_name[claim.name].append(claim)
    found: list[Violation] = []
    for name, held in by_name.items():
        if name in expected.permits:
            found += too_many(held, expected.permits[name])
        else:
            found += not_exclusive(held)
    for check_of in (reported, fenced_store, guarded_nodes, readers, counters):
        found += check_of(records)
    for name in expected.queues:
        found += taken_items(records, name)
    for name in expected.claim_queues:
        found += claimed_items(records, name)
    return sorted(found, key=lambda violation: violation.at)


def claims(records: Iterable[Record]) -> list[Claim]:
    """Return what was claimed, in the order in which the claims began."""
    found: dict[tuple[str, int], Claim] = {}
    over: set[tuple[str, int]] = set()
    for record in records:
        if record.what not in ("acquired", "certain", "released"):
            continue
        key = (record.author, record["lease"])
        if record.what == "acquired":
            if record["until"] > record.at:
                mode = record.get("mode", "write")
                found[key] = Claim(
                    record.name, record.author, record["lease"], mode, record["token"], record.at, record["until"]
                )
        elif key in found and key not in over:
            if record.what == "certain":
                found[key].end = max(found[key].end, record["until"])
            else:
                found[key].end = record.at
                over.add(key)
    return sorted(found.values(), key=lambda claim: claim.start)


# -- locks -------------------------------------------------------------------------------------------------


def not_exclusive(held: Sequence[Claim]) -> Iterator[Violation]:
    """Yield two claims of one lock at a time, and a token that is not greater than the token of an earlier owner.

    Readers may hold together, and have no order among themselves.  One client may hold twice by one token: a writer
    that has let readers in, and a task that passes its lease on to another task of its process.
    """
    for mine, others in (("write", ("write", "read")), ("read", ("write",))):
        last: Claim | None = None  # of those that a claim of the kind `mine` must not meet, the one that ends last
        greatest: Claim | None = None  # and the one with the greatest token
        for claim in held:
            if claim.mode == mine and last is not None and last.end > claim.start:
                both = min(last.end, claim.end) - claim.start
                text = f"two owners for certain: {last} and {claim}, for {both:.3f} s"
                yield Violation(claim.start, claim.name, text)
            is_smaller = claim.mode == mine and greatest is not None and claim.token <= greatest.token
            if greatest is not None and is_smaller and (claim.token, claim.author) != (greatest.token, greatest.author):
                text = f"the token of {claim} is not greater than the earlier one of {greatest}"
                yield Violation(claim.start, claim.name, text)
            if claim.mode in others and (last is None or claim.end > last.end):
                last = claim
            if claim.mode in others and (greatest is None or claim.token > greatest.token):
                greatest = claim


def too_many(held: Sequence[Claim], permits: int) -> Iterator[Violation]:
    """Yield a moment at which a semaphore had more holders than permits."""
    ends: list[float] = []
    for claim in held:
        ends = [end for end in ends if end > claim.start]
        insort(ends, claim.end)
        if len(ends) > permits:
            yield Violation(claim.start, claim.name, f"{len(ends)} holders of {permits} permits: the last is {claim}")


# -- what locks protect ------------------------------------------------------------------------------------


def fenced_store(records: Sequence[Record]) -> Iterator[Violation]:
    """Yield a stale token that the store has accepted, and an update that was lost in it."""
    greatest: dict[str, int] = {}
    values: dict[str, int] = {}
    for record in records:
        if record.what not in ("stored", "seen"):
            continue
        token = record["token"]
        if token < greatest.get(record.name, 0):
            yield Violation(record.at, record.name, f"the store has accepted the stale token {token:#x}")
        greatest[record.name] = max(token, greatest.get(record.name, 0))
        if record.what == "stored":
            if record["value"] != values.get(record.name, 0) + 1:
                text = f"an update was lost: {record['value']} was written over {values.get(record.name, 0)}"
                yield Violation(record.at, record.name, text)
            values[record.name] = record["value"]


def guarded_nodes(records: Sequence[Record]) -> Iterator[Violation]:
    """Yield an update that was lost in a node which is written by the transactions of leases.

    Each of them writes the number that it has read, plus one.  So the number equals the node's version.
    """
    acknowledged: dict[str, int] = defaultdict(int)
    for record in records:
        if record.what not in ("guarded", "guard at the end"):
            continue
        name, value = record.name, record["value"]
        if value != record["version"]:
            text = f"an update was lost: the node holds {value} after {record['version']} writes"
            yield Violation(record.at, name, text)
        if record.what == "guarded":
            acknowledged[name] += 1
        elif value < acknowledged[name]:
            text = f"{acknowledged[name]} writes were acknowledged, and the node holds {value}"
            yield Violation(record.at, name, text)


def readers(records: Sequence[Record]) -> Iterator[Violation]:
    """Yield a value that has changed while a reader was certain to hold the read lock."""
    first: dict[tuple[str, int], int] = {}
    for record in records:
        if record.what == "read" and record["certain"]:
            value = first.setdefault((record.author, record["lease"]), record["value"])
            if value != record["value"]:
                text = f"{value} became {record['value']} while client {record.author} held the read lock"
                yield Violation(record.at, record.name, text)


# -- counters and queues -----------------------------------------------------------------------------------


def counters(records: Sequence[Record]) -> Iterator[Violation]:
    """Yield an addition that was lost, or was made twice, or that came out of order.

    An addition whose client was killed, or got an error, may have been made or not.
    """
    begun: dict[str, int] = defaultdict(int)
    values: dict[str, dict[int, str]] = defaultdict(dict)
    greatest: dict[str, int] = defaultdict(int)  # of the additions that have ended
    under_way: dict[tuple[str, str], int] = {}  # the greatest value that had been returned when this addition began
    for record in records:
        name = record.name
        if record.what == "adding":
            begun[name] += 1
            under_way[name, record.author] = greatest[name]
        elif record.what == "added":
            value = record["value"]
            if value in values[name]:
                text = f"clients {values[name][value]} and {record.author} both got the value {value}"
                yield Violation(record.at, name, text)
            elif value <= under_way[name, record.author]:
                text = f"client {record.author} got {value} after {under_way[name, record.author]} had been returned"
                yield Violation(record.at, name, text)
            values[name][value] = record.author
            greatest[name] = max(greatest[name], value)
        elif record.what == "count at the end" and not len(values[name]) <= record["value"] <= begun[name]:
            text = f"{len(values[name])} additions were made for certain, {begun[name]} were begun, "
            yield Violation(record.at, name, f"{text}and the counter holds {record['value']}")


def taken_items(records: Sequence[Record], queue: str) -> Iterator[Violation]:
    """Yield an item that was taken twice, that was never put, or that was lost.

    An item may be lost with the consumer that was killed, or whose session ended, during its take.
    """
    ours = [record for record in records if record.name == queue]
    putting = {record["item"] for record in ours if record.what == "putting"}
    put = {record["item"]: record.at for record in ours if record.what == "put"}
    taken: dict[str, str] = {}
    getting: set[str] = set()
    for record in ours:
        if record.what == "getting":
            getting.add(record.author)
        elif record.what in ("got", "got none"):
            getting.discard(record.author)
        if record.what != "got":
            continue
        item = record["item"]
        if item in taken:
            yield Violation(record.at, queue, f"clients {taken[item]} and {record.author} both took the item {item}")
        if item not in putting:
            yield Violation(record.at, queue, f"client {record.author} took the item {item}, which was never put")
        taken[item] = record.author
    excuses = len(getting) + sum(record.what in ("session ended", "killed") for record in records)
    lost = sorted(put.keys() - taken.keys())
    is_drained = any(record.what == "drained" for record in ours)
    if is_drained and len(lost) > excuses:
        text = f"{len(lost)} items are lost, and only {excuses} takes were cut off: {', '.join(lost[:10])}"
        yield Violation(ours[-1].at, queue, text)


def claimed_items(records: Sequence[Record], queue: str) -> Iterator[Violation]:
    """Yield an item that was claimed after it had been handled, that was never put, or that was never handled."""
    putting = {record["item"] for record in records if record.what == "putting" and record.name == queue}
    put = {record["item"] for record in records if record.what == "put" and record.name == queue}
    handled: dict[str, str] = {}
    claimed: set[str] = set()
    for record in records:
        if record.what == "drained" and record.name == queue and (lost := sorted(put - claimed)):
            yield Violation(record.at, queue, f"{len(lost)} items were never claimed: {', '.join(lost[:10])}")
        if record.get("queue") != queue:
            continue
        item, text = record["item"], ""
        if record.what == "acquired" and record["until"] > record.at:
            claimed.add(item)
            if item in handled:
                text = f"client {record.author} claimed the item {item}, which client {handled[item]} had handled"
            elif item not in putting:
                text = f"client {record.author} claimed {item}, which was never put"
        elif record.what == "handled":
            if item in handled:
                text = f"clients {handled[item]} and {record.author} both handled the item {item} to its end"
            handled[item] = record.author
        if text:
            yield Violation(record.at, record.name, text)


# -- what the processes report themselves -----------------------------------------------------------------

_REPORTS = {
    "refused": "a write of client {author} was refused while its lease was certain",
    "guard refused": "a write of client {author} was refused while its lease was certain",
    "stuck": "no progress within {seconds:g} s of the last fault",
    "left": "nodes are left: {nodes}",
    "failed": "client {client} has failed: {why}",
    "error": "client {author} got an error that no fault explains: {error}: {text}",
}


def reported(records: Sequence[Record]) -> Iterator[Violation]:
    """Yield a refusal of the store or ZooKeeper to a holder that was certain, a stop, a failure, and nodes that stay.

    Errors that a fault explains are none.
    """
    for record in records:
        is_explained = (
            record.get("error") in EXPECTED_ERRORS or record.get("transient") or not record.get("certain", True)
        )
        if record.what in _REPORTS and not is_explained:
            text = _REPORTS[record.what].format(author=record.author, **record.details)
            yield Violation(record.at, record.name, text)
