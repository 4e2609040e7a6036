"""The worker processes: started once, then used for one race after the other.

This module knows a contestant only as a function of an Order and of the pipe on which the start signal comes.
"""

import multiprocessing
import signal
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Final, Self

from bench import bareline, ourline, rawline
from bench.racing import Race, undisturbed
from bench.turns import Order, Turn

CONTESTANTS: Final[dict[str, Race]] = {
    "zkwire": ourline.race,
    "asyncio": bareline.race,
    "floor": rawline.race,
    "textbook": rawline.race,
    **{name: ourline.race for name in ourline.ACQUIRE if name != "zkwire"},
}
USUAL: Final = ("zkwire", "asyncio", "floor", "textbook")

START_TIME_LIMIT: Final = 60.0
TURN_TIME_LIMIT: Final = 0.1  # beyond the hold; hundreds of times what a turn takes


class WorkerFailedError(RuntimeError):
    """A worker process died, or none finished in time; its own error message is on stderr."""


class Crew:
    """A number of worker processes, which end when the ``with`` block is left."""

    def __init__(self, size: int) -> None:
        # Spawned, not forked: a worker must start with the same clean state as a user's process.
        context = multiprocessing.get_context("spawn")
        self._pipes: list[Connection] = []
        self._processes = []
        for _ in range(size):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs,), daemon=True)
            process.start()
            # Only the worker may hold its end: otherwise its death would not appear here as an end of file.
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pipe, process in zip(self._pipes, self._processes, strict=True):
            pipe.close()  # an idle worker ends when its pipe is closed
            if error is not None:
                process.terminate()
        for process in self._processes:
            process.join()

    def race(self, orders: Sequence[Order]) -> list[Turn]:
        """Give each worker one order, start them together, and return the records of all.

        Raises:
            WorkerFailedError: if a process died, or was silent for too long.
        """
        pipes = self._pipes[: len(orders)]
        for pipe, order in zip(pipes, orders, strict=True):
            pipe.send(order)
        self._gather(pipes, START_TIME_LIMIT)
        for pipe in pipes:
            pipe.send("go")
        turns = sum(order.turns * (order.hold + TURN_TIME_LIMIT) for order in orders)
        records = self._gather(pipes, START_TIME_LIMIT + turns)
        return [Turn(*turn) for record in records for turn in record]

    def _gather(self, pipes: Sequence[Connection], time_limit: float) -> list[list[Turn]]:
        """Receive one message from each pipe, in the order in which they arrive."""
        messages = []
        waiting = list(pipes)
        while waiting:
            ready = [pipe for pipe in wait(waiting, time_limit) if isinstance(pipe, Connection)]
            if not ready:
                raise WorkerFailedError(f"{len(waiting)} of {len(pipes)} workers were silent for {time_limit:.0f} s")
            for pipe in ready:
                try:
                    messages.append(pipe.recv())
                except (EOFError, ConnectionResetError) as error:
                    process = self._processes[self._pipes.index(pipe)]
                    process.join()
                    raise WorkerFailedError(f"worker {process.name} ended with {process.exitcode}") from error
                waiting.remove(pipe)
        return messages


def _serve(orders: Connection) -> None:
    """Run one race after the other until the parent closes the pipe."""
    # The parent reports Ctrl-C; a worker just ends.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    while True:
        try:
            order: Order = orders.recv()
        except EOFError:
            return
        orders.send(undisturbed(CONTESTANTS[order.contestant], order, orders))
