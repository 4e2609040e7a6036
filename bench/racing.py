"""What every contestant is to the processes that run it: a function of an order and of a starter."""

import gc
from collections.abc import Callable
from typing import Any, Protocol

from bench.turns import Order, Turn


class Starter(Protocol):
    """Where a contestant reports that it is ready, and then receives the start signal."""

    def send(self, obj: Any, /) -> None:
        """Report that the contestant is connected."""

    def recv(self) -> Any:
        """Wait for the start signal and return it."""

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when the start signal has come."""


Race = Callable[[Order, Starter], list[Turn]]


def undisturbed(race: Race, order: Order, starter: Starter) -> list[Turn]:
    """Run a race without a garbage collection, which would slow down some hand-overs and not others."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        return race(order, starter)
    finally:
        gc.enable()
        gc.unfreeze()
