"""The worker processes: started once, then sent from race to race.

It knows that a contestant is a function of an Order and of the pipe on which the start is given, and nothing of what it
does.
"""

import gc
import multiprocessing
import signal
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Final, Self

from bench import bareline, ourline, rawline
from bench.turns import Order, Turn

CONTESTANTS: Final[dict[str, Callable[[Order, Connection], list[Turn]]]] = {
    "zkwire": ourline.race,
    "asyncio": bareline.race,
    "floor": rawline.race,
    "textbook": rawline.race,
}

_START_TIME_LIMIT = 60.0
_TURN_TIME_LIMIT = 0.1  # beyond the hold; hundreds of times what a turn takes


class WorkerFailedError(RuntimeError):
    """A worker process died, or none finished in time; its own words are on stderr."""


class Crew:
    """A number of worker processes, all of them ended when the ``with`` block is left."""

    def __init__(self, size: int) -> None:
        # Not forked: a worker starts as fresh as a user's process does.
        context = multiprocessing.get_context("spawn")
        self._pipes: list[Connection] = []
        self._processes = []
        for _ in range(size):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs,), daemon=True)
            process.start()
            # Only the worker may hold its end, or its death would not be seen as an end of file.
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pipe, process in zip(self._pipes, self._processes, strict=True):
            pipe.close()  # an idle worker ends by itself
            if error is not None:
                process.terminate()
        for process in self._processes:
            process.join()

    def race(self, orders: Sequence[Order]) -> list[Turn]:
        """Give one order each to as many workers, start them together, and return the records of all.

        Raises WorkerFailedError.
        """
        pipes = self._pipes[: len(orders)]
        for pipe, order in zip(pipes, orders, strict=True):
            pipe.send(order)
        self._gather(pipes, _START_TIME_LIMIT)
        for pipe in pipes:
            pipe.send("go")
        turns = sum(order.turns * (order.hold + _TURN_TIME_LIMIT) for order in orders)
        records = self._gather(pipes, _START_TIME_LIMIT + turns)
        return [Turn(*turn) for record in records for turn in record]

    def _gather(self, pipes: Sequence[Connection], time_limit: float) -> list[list[Turn]]:
        """Receive one message from each, in whatever order they come."""
        messages = []
        waiting = list(pipes)
        while waiting:
            ready = [pipe for pipe in wait(waiting, time_limit) if isinstance(pipe, Connection)]
            if not ready:
                raise WorkerFailedError(f"{len(waiting)} of {len(pipes)} workers said nothing for {time_limit:.0f} s")
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
    """What a worker does: one race after the other until the parent closes the pipe."""
    # Ctrl-C is the parent's to explain.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    while True:
        try:
            order: Order = orders.recv()
        except EOFError:
            return
        # A collection would strike some hand-overs and not others; what a race leaves is collected before the next.
        gc.collect()
        gc.freeze()
        gc.disable()
        turns = CONTESTANTS[order.contestant](order, orders)
        gc.enable()
        gc.unfreeze()
        orders.send(turns)
