"""Lets hypothesis look for a script that the two servers answer differently."""

import asyncio
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings
from hypothesis.errors import FlakyFailure

from tests.captures.sides import RealSide
from tests.differential.operations import Step, scripts
from tests.differential.play import MAX_TIMEOUT, Different, Play
from zkwire.testing import RealServer
from zkwire.testing.real.server import QUICK_START

_ROOTS = itertools.count(1)  # a node for each script, which stays on the real server


@contextmanager
def real_side() -> Iterator[RealSide]:
    """Start a new real server with a periodic clean-up that does not run during a trial."""
    server = RealServer(
        version="3.9",
        tick_time=2.0,
        properties={"maxSessionTimeout": str(round(MAX_TIMEOUT * 1000))},
        jvm=["-Dznode.container.checkIntervalMs=1000000000", *QUICK_START],
        fsync=False,
    )
    asyncio.run(server.start())
    try:
        yield RealSide(server.port)
    finally:
        asyncio.run(server.close())


class Trial:
    """A search of a number of scripts against one real server."""

    def __init__(self, real: RealSide) -> None:
        self._real = real
        self.operations = 0

    def play(self, steps: Sequence[Step]) -> None:
        """Play one script; raise Different if the answers differ."""
        play = Play(self._real, f"/d{next(_ROOTS)}")
        try:
            play.run(steps)
        finally:
            self.operations += play.operations

    def search(self, count: int, number: int) -> None:
        """Play `count` random scripts, from a seed; raise Different with the smallest script that shows it."""

        @seed(number)
        @settings(
            max_examples=count,
            deadline=None,
            database=None,
            verbosity=Verbosity.quiet,  # the script is in the exception, in a form that can be read
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
        )
        @given(scripts())
        def trial(steps: list[Step]) -> None:
            self.play(steps)

        run: Callable[[], None] = trial
        try:
            run()
        except FlakyFailure as failures:
            raise Different(f"different once, but not when played again:\n{failures.exceptions[0]}") from None
