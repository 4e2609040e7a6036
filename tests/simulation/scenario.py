"""What a scenario is: what the players do, and what is checked besides what holds for all scenarios."""

from abc import ABC, abstractmethod
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar

from tests.simulation.schedule import Step

if TYPE_CHECKING:
    from tests.simulation.stage import Player, Stage


class Scenario(ABC):
    """One run of a scenario.

    `name` is what it is called on the command line.  `players` is how many there are at the least and at the most.
    `patience` is how many seconds all steps may take when nothing goes wrong, beside what timeouts take and `holds`.
    """

    name: ClassVar[str]
    players: ClassVar[tuple[int, int]] = (2, 4)
    patience: ClassVar[float] = 60.0

    def __init__(self, stage: "Stage") -> None:
        self.stage = stage

    def options(self) -> dict[str, Any]:
        """Return further arguments of zkwire.connect."""
        return {}

    @staticmethod
    @abstractmethod
    def tasks(rng: Random, tick: float) -> list[list[Step]]:
        """Return what one player does: lists of steps that are done beside one another; `tick` is the servers'."""

    @staticmethod
    def long_step(seconds: float) -> Step | None:
        """Return the step that holds something for so long, None if nothing is held in this scenario."""
        return None

    @classmethod
    def busy_step(cls, seconds: float, pause: float) -> Step | None:
        """Return the step that holds something for so long, and asks the leader again and again with this pause."""
        return None

    @staticmethod
    def poll_step(seconds: float, pause: float) -> Step | None:
        """Return the step that tries again and again with this pause until it holds something, and then for so long.

        None if nothing can be tried in this scenario.
        """
        return None

    @staticmethod
    def together(seconds: float) -> Step | None:
        """Return the step that holds something for so long, which several tasks of one player can do together.

        None if there is no such step: if each task would wait for the one before it.
        """
        return None

    @staticmethod
    def resizing(seconds: float, permits: int) -> tuple[Step, Step] | None:
        """Return the steps that follow the number of permits for so long, and that set another number.

        None if there is no number of permits in this scenario.
        """
        return None

    @staticmethod
    def written_step() -> Step | None:
        """Return a step that creates a node and checks the answer, None if there is none in this scenario."""
        return None

    @abstractmethod
    def equip(self, player: "Player") -> object:
        """Return what `player` needs for its steps, for example a Lock; called in its event loop."""

    def holds(self) -> float:
        """Return for how many seconds all steps together hold what only one of them can hold."""
        return 0.0

    @abstractmethod
    async def do(self, player: "Player", step: Step) -> None:
        """Do a step; an exception is a failure."""

    async def finish(self, player: "Player") -> None:  # noqa: B027
        """Do what each player does when all its steps are done; its client is still connected."""

    def deletable(self) -> list[str]:
        """Return the nodes that an operator may delete."""
        return []

    def writable(self) -> list[str]:
        """Return the nodes that an operator may write into."""
        return self.deletable()

    def lines(self) -> list[str]:
        """Return the nodes below which strangers may create nodes that look like tickets."""
        return []

    def deleted(self, path: str) -> None:  # noqa: B027
        """Record that an operator deletes a node."""

    def left(self) -> list[str]:
        """Return the nodes that are there and must not be, once all steps are done."""
        return []

    def ended(self) -> None:  # noqa: B027
        """Check the whole run, once everything is closed."""
