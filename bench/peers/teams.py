"""The processes of the contestants: started once, then used for one race after the other.  See lines.py."""

import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Self

from bench.crew import START_TIME_LIMIT, TURN_TIME_LIMIT, WorkerFailedError
from bench.peers.builds import Command
from bench.peers.lines import DONE, GO, READY, order_line, parsed_turn
from bench.servers import ROOT
from bench.turns import Order, Turn


class Teams:
    """The processes of each contestant, which end when the ``with`` block is left; `commands` start one of them."""

    def __init__(self, commands: Mapping[str, Command]) -> None:
        self._commands = commands
        self._teams: dict[str, list[_Runner]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in list(self._teams):
            self._dismiss(name, at_once=error is not None)

    def race(self, orders: Sequence[Order]) -> list[Turn]:
        """Give each of as many processes one order, start them together, and return the records of all.

        All orders name one contestant.  When one process fails, all of that contestant end.

        Raises:
            WorkerFailedError: if a process has ended, or answers something else.
        """
        (name,) = {order.contestant for order in orders}
        team = self._teams.setdefault(name, [])
        while len(team) < len(orders):
            team.append(_Runner(self._commands[name]))
        team = team[: len(orders)]
        try:
            with _limit(team, START_TIME_LIMIT):
                for runner, order in zip(team, orders, strict=True):
                    runner.write(order_line(order))
                for runner in team:
                    runner.expect(READY)
            turns = sum(order.turns * (order.hold + TURN_TIME_LIMIT) for order in orders)
            with _limit(team, START_TIME_LIMIT + turns):
                for runner in team:
                    runner.write(GO)
                return [turn for runner, order in zip(team, orders, strict=True) for turn in runner.turns(order.turns)]
        except WorkerFailedError:
            self._dismiss(name, at_once=True)
            raise

    def race_anew(self, orders: Sequence[Order]) -> list[Turn]:
        """Race with processes that have just started.

        Raises:
            WorkerFailedError: if a process has ended, or answers something else.
        """
        name = orders[0].contestant
        if name in self._teams:
            self._dismiss(name, at_once=False)
        return self.race(orders)

    def _dismiss(self, name: str, *, at_once: bool) -> None:
        for runner in self._teams[name]:
            runner.dismiss(at_once=at_once)
        for runner in self._teams.pop(name):
            runner.wait()


@contextmanager
def _limit(team: Sequence["_Runner"], seconds: float) -> Iterator[None]:
    """End the processes after `seconds`: what waits for their lines then fails."""

    def end() -> None:
        for runner in team:
            runner.dismiss(at_once=True)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class _Runner:
    """One process."""

    def __init__(self, command: Command) -> None:
        self._process = subprocess.Popen(
            list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input = self._process.stdin
        self._output = self._process.stdout

    def write(self, line: str) -> None:
        """Send a line.

        Raises:
            WorkerFailedError: if a process has ended, or answers something else.
        """
        try:
            self._input.write(f"{line}\n")
            self._input.flush()
        except BrokenPipeError as error:
            raise WorkerFailedError("a process has ended") from error

    def expect(self, line: str) -> None:
        """Read a line.

        Raises:
            WorkerFailedError: if a process has ended, or answers something else.
        """
        found = self._read()
        if found != line:
            raise WorkerFailedError(f"expected {line!r}, got {found!r}")

    def turns(self, count: int) -> list[Turn]:
        """Read the turns of a race to its end.

        Raises:
            WorkerFailedError: if a process has ended, or answers something else.
        """
        lines = [self._read() for _ in range(count)]
        self.expect(DONE)
        try:
            return list(map(parsed_turn, lines))
        except ValueError as error:
            raise WorkerFailedError(f"no line of a turn: {error}") from error

    def _read(self) -> str:
        line = self._output.readline()
        if not line:
            raise WorkerFailedError("a process has ended, or was ended because it took too long")
        return line.rstrip("\n")

    def dismiss(self, *, at_once: bool) -> None:
        """Let the process end, by a signal or by the end of its orders."""
        if at_once:
            self._process.kill()
        else:
            self._input.close()

    def wait(self) -> None:
        """Wait until the process has ended."""
        self._process.wait()
        self._output.close()
        with suppress(BrokenPipeError):  # of a line that the process has not read
            self._input.close()
