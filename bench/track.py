"""The races: the servers and the settings, and the order in which the contestants have their turns."""

import contextlib
import math
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from bench import rawline
from bench.crew import WorkerFailedError
from bench.servers import say, scratch
from bench.turns import SESSION_TIMEOUT, Order, Turn
from zkwire.session.hosts import Address, parse

WARM_UP_TURNS: Final = 2  # of each worker, at the start of each race
LONGEST_HOLD: Final = SESSION_TIMEOUT / 3  # a raw worker sends nothing while it holds


# Gives each of as many processes one order, starts them together, and returns the records of all.  It raises
# WorkerFailedError if a process died, or was silent for too long.
Runners = Callable[[Sequence[Order]], list[Turn]]


@dataclass(slots=True)
class Track:
    """The servers and the settings of the races."""

    servers: list[Address]
    folder: str
    hold: float
    hand_overs: int
    races: int = 0

    def race(self, runners: Runners, contestant: str, workers: int, *, hold: float) -> list[Turn]:
        """Run one race on a new lock.

        Raises:
            WorkerFailedError: if a process has ended, or answers something else.
        """
        # The counted turns, the warm-up, and one more each for the end, when the line grows shorter.
        turns = math.ceil(self.hand_overs / workers) + WARM_UP_TURNS + 1
        lock = f"{self.folder}/{self.races}-{contestant}"
        self.races += 1
        with rawline.RawSession(*self.servers[0]) as session:
            rawline.make_path(session, lock)
        # On an ensemble each worker has one server, the same for every contestant.
        servers = [self.servers[number % len(self.servers)] for number in range(workers)]
        orders = [
            Order(contestant, server.host, server.port, lock, turns, hold, place)
            for place, server in enumerate(servers)
        ]
        return runners(orders)

    def rounds(
        self, runners: Runners, contestants: list[str], workers: int, rounds: int, needed: Sequence[str]
    ) -> Iterator[tuple[str, list[Turn]]]:
        """Run all rounds with one number of workers, and give each race's contestant and turns.

        A contestant that fails is removed from `contestants`, the others go on.

        Raises:
            WorkerFailedError: if one that is `needed` fails.
        """
        for number in range(rounds):
            # Each round starts with another contestant, so that none always follows the same one.
            first = number % len(contestants)
            for name in contestants[first:] + contestants[:first]:
                say(f"{workers} workers, round {number + 1} of {rounds}: {name}")
                try:
                    turns = self.race(runners, name, workers, hold=self.hold)
                except WorkerFailedError as error:
                    if name in needed:
                        raise
                    say(f"{name} is left out: {error}")
                    contestants.remove(name)
                else:
                    yield name, turns


@contextlib.contextmanager
def laid_out(hosts: str, hold: float, hand_overs: int) -> Iterator[Track]:
    """Create a node of its own for this run's locks, and remove it at the end."""
    servers, chroot = parse(hosts)
    track = Track(servers, f"{chroot}/zkwire-bench-{secrets.token_hex(6)}", hold, hand_overs)
    with scratch(servers[0], track.folder):
        yield track
