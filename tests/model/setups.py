"""What the model checks play: small enough for every run of the tests, and more on demand."""

from typing import Final

from tests.model.ensemble import Times
from tests.model.line import LOCK, READ, TWO, WRITE, Setup

SETUPS: Final = {
    "a lock, across the overflow of the numbers": Setup((LOCK,) * 4, (3,), first=2**31 - 2),
    "a lock, with a reconnect": Setup((LOCK,) * 4, (3,), reconnects=1),
    "a lock, with a ticket behind": Setup((LOCK,) * 3, (1,), reconnects=1),
    "a lock, with a reconnect and an eviction": Setup((LOCK,) * 3, (2,), reconnects=1, evictions=1),
    "a lock, with two reconnects and an operator": Setup((LOCK,) * 2, (1,), reconnects=2, evictions=1, touches=1),
    "a lock, with a refusal": Setup((LOCK,) * 2, (1,), reconnects=1, evictions=1, touches=1, refusals=1),
    "a lock, with shared looks": Setup((LOCK,) * 3, (2,), reconnects=1, evictions=1, shares=True),
    "a lock, both tickets": Setup((LOCK,) * 2, (0, 1), reconnects=1, evictions=1, aborts=True),
    "a reader before a writer": Setup((WRITE, READ, WRITE), (1,), reconnects=1, downgrades=1),
    "a writer behind readers": Setup((READ, WRITE, READ, WRITE), (3,), reconnects=1),
    "a semaphore that shrinks and grows": Setup((LOCK,) * 2, (1,), slots=2, sizes=(1, 2), reconnects=1, evictions=1),
    "a semaphore that grows, with an operator": Setup((LOCK,) * 2, (1,), sizes=(2,), reconnects=1, evictions=1),
    "a semaphore, behind two permits at once": Setup((TWO, LOCK, LOCK), (2,), slots=3, sizes=(2,), reconnects=1),
    "a semaphore, two permits at once": Setup((LOCK, TWO, TWO), (2,), slots=3, sizes=(2,)),
    "a lock, two tickets of a client": Setup((LOCK,) * 5, (3, 4), together=True, settled=True),
    "a reader and a writer of a client": Setup(
        (WRITE, WRITE, READ, WRITE), (2, 3), downgrades=1, together=True, settled=True
    ),
    # The first reader hears of the first writer, which is not the next before the second reader.
    "two readers of a client, apart, with a reconnect": Setup(
        (WRITE, READ, WRITE, WRITE, READ), (1, 4), reconnects=1, together=True, settled=True, leaves=(3, 0)
    ),
}

MORE: Final = {
    "two readers of a client": Setup((WRITE, WRITE, READ, READ), (2, 3), together=True),
    "a semaphore that shrinks": Setup((LOCK,) * 3, (2,), slots=2, sizes=(1,), reconnects=1),
    "a lock, with an eviction": Setup((LOCK,) * 4, (3,), evictions=1),
    "a lock, all three tickets": Setup((LOCK,) * 3, (0, 1, 2), aborts=True),
    "a writer and two readers": Setup((WRITE, READ, READ), (0, 1, 2), downgrades=1),
    "a semaphore, two tickets of a client": Setup(
        (LOCK,) * 6, (4, 5), slots=2, together=True, settled=True, leaves=(2, 3, 0, 1)
    ),
    "a reader behind writers": Setup((WRITE, READ, WRITE, READ), (3,), reconnects=1, downgrades=1),
    "a reader, with shared looks": Setup((WRITE, READ, WRITE, READ), (3,), reconnects=1, downgrades=1, shares=True),
    "a semaphore, with shared looks": Setup((LOCK,) * 3, (2,), slots=2, sizes=(1,), reconnects=1, shares=True),
    "a reader before a writer, with an operator": Setup(
        (WRITE, READ, WRITE), (1,), reconnects=1, downgrades=1, evictions=1
    ),
    "a lock, with three reconnects": Setup((LOCK,) * 3, (2,), reconnects=3),
    "a lock, three tickets and an operator": Setup((LOCK,) * 3, (2,), reconnects=1, evictions=1, touches=1),
    "a lock, both tickets and an operator": Setup(
        (LOCK,) * 2, (0, 1), reconnects=1, evictions=1, touches=1, aborts=True
    ),
    "a reader, two reconnects and an operator": Setup(
        (WRITE, READ), (1,), reconnects=2, evictions=1, touches=1, downgrades=1
    ),
    "a semaphore, four tickets, two numbers": Setup((LOCK,) * 4, (3,), slots=2, sizes=(1, 2)),
    "a semaphore, two real tickets, one with two permits": Setup(
        (LOCK, TWO, LOCK), (1, 2), slots=3, sizes=(2,), aborts=True
    ),
    "a semaphore, two permits at once, with an operator": Setup(
        (LOCK, TWO, TWO), (2,), slots=3, sizes=(2,), reconnects=1, evictions=1
    ),
    "a semaphore, two real tickets": Setup((LOCK,) * 3, (1, 2), slots=2, sizes=(1,), aborts=True),
    "two readers of a client, with a reconnect": Setup(
        (WRITE, WRITE, READ, READ), (2, 3), reconnects=1, together=True, settled=True
    ),
    "a lock, all five tickets are of a client": Setup(
        (LOCK,) * 5, (0, 1, 2, 3, 4), aborts=True, together=True, settled=True
    ),
    "a lock, two tickets of a client, with a reconnect": Setup(
        (LOCK,) * 5, (3, 4), reconnects=1, together=True, settled=True, leaves=(1, 2, 0)
    ),
}

TIMES: Final = {
    "exact": Times(horizon=5, requests=3),
    "buckets": Times(horizon=4, requests=3, in_buckets=True),
    "election": Times(horizon=3, requests=3, elections=1),
    "move": Times(horizon=3, requests=2, elections=1, moves=1),
    "slow client": Times(horizon=3, requests=3, slow_client=True),
}

MORE_TIMES: Final = {"election, longer": Times(horizon=4, requests=3, elections=1)}
