"""A schedule: all that is decided before a run, as plain data that can be printed, kept, shortened and played again.

A schedule is made from a scenario's name and a number.  Playing it is deterministic: latencies and the like come from
its `seed`.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from random import Random
from typing import Any, Final

from tests.simulation.ensemble.ensemble import Shape

_TICKS: Final = (1.0, 2.0)
_TIMEOUTS: Final = (2.0, 2.0, 2.0, 3.0, 5.0, 8.0, 12.0, 20.0)  # in ticks; most of them outlive an election
DRIFT: Final = 1e-4  # clocks differ by up to so much per second
HORIZON: Final = 8.0  # seconds in which most faults begin


@dataclass(frozen=True, slots=True)
class Step:
    """Something that an actor does: what it is, and up to two numbers, which mean what the scenario says.

    It is cancelled after so many `turns` of the actor's event loop, unless that is negative.
    """

    kind: str
    amount: float = 0.0
    other: float = 0.0
    turns: int = -1

    @property
    def verb(self) -> str:
        """What is done: the last word of the kind."""
        return self.kind.rpartition(" ")[2]

    @property
    def what(self) -> str:
        """What it is done with: the words before."""
        return self.kind.rpartition(" ")[0]

    def __str__(self) -> str:
        cancelled = f" (cancelled after {self.turns} turns)" if self.turns >= 0 else ""
        return " ".join([self.kind, *(f"{each:.4g}" for each in (self.amount, self.other) if each)]) + cancelled


@dataclass(frozen=True, slots=True)
class Actor:
    """A client on a machine of its own.

    Arguments: `servers`, the names of those that it knows; `timeout`, of its session, in seconds; `rate` and `offset`,
    of its machine's clock; `slowness`, how long each turn of its event loop takes, in seconds; `tasks`, what it does:
    several lists of steps, which are done beside one another.
    """

    name: str
    servers: tuple[str, ...]
    timeout: float
    rate: float
    offset: float
    slowness: float
    tasks: tuple[tuple[Step, ...], ...]


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that goes wrong.

    Arguments: `at`, when it begins; `kind`, see faults.py; `targets`, names of machines and servers; `seconds`, how
    long it lasts; `amount`, what the kind says.
    """

    at: float
    kind: str
    targets: tuple[str, ...]
    seconds: float = 0.0
    amount: float = 0.0


@dataclass(frozen=True, slots=True)
class Schedule:
    """Who does what, and what goes wrong.

    Arguments: `backoff`, how long connections need to recover, see links.py.
    """

    scenario: str
    seed: int
    shape: Shape
    actors: tuple[Actor, ...]
    faults: tuple[Fault, ...]
    backoff: float = 0.0

    @property
    def calm(self) -> float:
        """When the last fault is over, and connections have recovered."""
        return max((fault.at + fault.seconds * (1 + self.backoff) for fault in self.faults), default=0.0)

    @property
    def longest(self) -> float:
        """The longest session timeout that a client asks for."""
        times = max((fault.amount for fault in self.faults if fault.kind == "crash"), default=0.0)
        return max((actor.timeout for actor in self.actors), default=0.0) * max(1.0, times)

    @property
    def work(self) -> float:
        """For how many seconds all steps together may hold what only one of them can hold; some hold it twice."""
        return sum(2 * step.amount for actor in self.actors for steps in actor.tasks for step in steps)

    @property
    def size(self) -> int:
        """How many faults and steps there are."""
        return len(self.faults) + sum(len(steps) for actor in self.actors for steps in actor.tasks)

    def to_json(self) -> str:
        """Return the schedule as text; `from_json` reads it."""
        return json.dumps(asdict(self))

    def __str__(self) -> str:
        lines = [f"scenario {self.scenario}, seed {self.seed}, {self.shape}, backoff {self.backoff:g}"]
        for actor in self.actors:
            speed = f", {actor.slowness:g} s for each turn" if actor.slowness else ""
            lines.append(
                f"  {actor.name}: knows {', '.join(actor.servers)}; session of {actor.timeout:g} s; clock x"
                f" {actor.rate:.5f}{speed}"
            )
            lines += [f"    does: {', '.join(map(str, steps))}" for steps in actor.tasks]
        for fault in self.faults:
            amount = f" ({fault.amount:.3g})" if fault.amount else ""
            lines.append(
                f"  at {fault.at:.3f} s: {fault.kind} {' '.join(fault.targets)} for {fault.seconds:.3f} s{amount}"
            )
        return "\n".join(lines)


def from_json(text: str) -> Schedule:
    """Return the schedule that `to_json` has written."""
    read: dict[str, Any] = json.loads(text)
    return Schedule(
        read["scenario"],
        read["seed"],
        Shape(**{**read["shape"], "longest": tuple(read["shape"]["longest"])}),
        tuple(
            Actor(
                **{
                    **actor,
                    "servers": tuple(actor["servers"]),
                    "tasks": tuple(tuple(Step(**step) for step in steps) for steps in actor["tasks"]),
                }
            )
            for actor in read["actors"]
        ),
        tuple(Fault(**{**fault, "targets": tuple(fault["targets"])}) for fault in read["faults"]),
        read.get("backoff", 0.0),
    )


def random_shape(rng: Random) -> Shape:
    """Return an ensemble of three voters, with an observer or two more voters at times."""
    voters = 5 if rng.random() < 0.1 else 3
    observers = 1 if rng.random() < 0.3 else 0
    tick = rng.choice(_TICKS)
    longest: tuple[float | None, ...] = ()
    if rng.random() < 0.2:  # some servers grant shorter sessions than others
        longest = tuple(rng.choice([None, 2 * tick, 3 * tick]) for _ in range(voters + observers))
    return Shape(voters, observers, tick, longest)


def random_actor(rng: Random, name: str, shape: Shape, tasks: Sequence[Sequence[Step]]) -> Actor:
    """Return a client that does `tasks`."""
    servers = (rng.choice(shape.servers),) if rng.random() < 0.3 else shape.servers
    return Actor(
        name,
        servers,
        timeout=rng.choice(_TIMEOUTS) * shape.tick,
        rate=1 + rng.uniform(-DRIFT, DRIFT),
        offset=rng.choice([0.0, rng.uniform(0, 1e6)]),
        slowness=rng.choice([0.0, 0.0, 0.0, 0.0, 0.001, 0.02]),
        tasks=tuple(tuple(steps) for steps in tasks),
    )
