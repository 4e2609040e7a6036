"""Which faults a run plays, and when: pure, from a seed.

Servers and clients each have a lane of their own, in which one fault follows the other, mostly with a pause between.
So there are times without a fault, with one, and with several.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

WARM_UP: Final = 3.0  # seconds before the first fault

# A server is named by what it is at that moment, so that the leader is met often.
ROLES: Final = ("leader", "leader", "follower", "follower", "observer")
# A server that does not lead, and is the only one that some client knows.
HOME: Final = "home"

# Kinds of faults, with the seconds that each lasts and how often it is played in relation to the others.
SERVER_FAULTS: Final = {
    "kill server": ((0.1, 5.0), 4),
    "stop server": ((0.5, 12.0), 4),
    "restart server": ((0.1, 1.0), 2),
    "cut off server": ((1.0, 16.0), 4),  # all its links to other servers are stalled
    "stall to leader": ((1.0, 12.0), 2),
    "stall from leader": ((1.0, 12.0), 2),
    "stall both ways": ((1.0, 16.0), 6),
    "close links": ((0.1, 6.0), 2),  # of the server to all others
    "delay links": ((2.0, 8.0), 2),
    # All links of a home to other servers are stalled for longer than the sessions last, while its clients hold on.
    "strand clients": ((10.0, 16.0), 8),
}
CLIENT_FAULTS: Final = {
    "kill client": ((0.0, 3.0), 5),
    "stop client": ((0.3, 12.0), 5),
    "cut client": ((0.0, 4.0), 4),
    "stall client": ((0.5, 9.0), 3),
    "stall to client": ((0.5, 9.0), 3),
    "stall from client": ((0.5, 9.0), 3),
    "delay client": ((1.0, 6.0), 2),
    # The connection breaks, and what was sent in one direction before that is lost: all requests, or the answers that
    # were delayed.  Answers are not stalled: recipes read before they write, and would never get to a write.
    "lose requests": ((0.3, 1.5), 6),
    "lose answers": ((0.5, 2.0), 6),
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: begins `at` seconds after the start of the run, and lasts for `seconds`.

    `target` is a role for faults of servers, a client's number otherwise; `server` is the only server that a fault of a
    client's links concerns, None for all of them; `delay` is in seconds.
    """

    at: float
    kind: str
    target: str | int
    seconds: float
    server: int | None = None
    delay: float = 0.0

    def __str__(self) -> str:
        where = "" if self.server is None else f" (server {self.server})"
        delay = f" by {self.delay:.2f} s" if self.delay else ""
        return f"{self.kind} {self.target}{where}{delay} for {self.seconds:.1f} s"


def schedule(seed: str, seconds: float, *, clients: int, servers: int, spares_servers: bool = False) -> list[Fault]:
    """Return the faults of a run in the order of their beginnings; none lasts beyond `seconds`.

    Args:
        seed: Of the choices.
        seconds: How long the run is.
        clients: How many there are.
        servers: How many there are.
        spares_servers: Whether servers have no faults.
    """
    rng = random.Random(f"{seed}/schedule")
    faults: list[Fault] = []
    if not spares_servers:
        faults += _lane(rng, seconds, lambda at: _of_server(rng, at), longest_pause=7.0)
    for _ in range(2):
        faults += _lane(rng, seconds, lambda at: _of_client(rng, at, clients, servers), longest_pause=3.0)
    return sorted(faults, key=lambda fault: fault.at)


def _lane(
    rng: random.Random, seconds: float, make: Callable[[float], Fault], *, longest_pause: float
) -> Iterator[Fault]:
    at = rng.uniform(0.5, 1.0) * WARM_UP
    while True:
        fault = make(at)
        if at + fault.seconds > seconds:
            return
        yield fault
        overlaps = rng.random() < 0.2
        at += fault.seconds * rng.random() if overlaps else fault.seconds + rng.uniform(0.2, longest_pause)


def _of_server(rng: random.Random, at: float) -> Fault:
    kind, seconds = _choice(rng, SERVER_FAULTS)
    delay = rng.choice([rng.uniform(0.01, 0.2), rng.uniform(0.2, 1.5)]) if kind == "delay links" else 0.0
    role = rng.choice(ROLES)
    return Fault(at, kind, HOME if kind == "strand clients" else role, seconds, delay=delay)


def _of_client(rng: random.Random, at: float, clients: int, servers: int) -> Fault:
    kind, seconds = _choice(rng, CLIENT_FAULTS)
    # What is lost must be lost on the link that the client uses.
    has_links = kind not in ("kill client", "stop client", "lose requests", "lose answers")
    server = rng.randint(1, servers) if has_links and servers > 1 and rng.random() < 0.5 else None
    delay = {"delay client": rng.uniform(0.01, 1.0), "lose answers": rng.uniform(0.1, 0.4)}.get(kind, 0.0)
    return Fault(at, kind, rng.randint(1, clients), seconds, server, delay)


def _choice(rng: random.Random, faults: dict[str, tuple[tuple[float, float], int]]) -> tuple[str, float]:
    kind = rng.choices(list(faults), [weight for _, weight in faults.values()])[0]
    return kind, rng.uniform(*faults[kind][0])
