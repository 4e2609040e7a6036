"""The lines by which a contestant's program is given an order, and by which it answers.

A program reads orders from its standard input until the end, one line each: ``HOST:PORT LOCK TURNS HOLD``, HOLD in
seconds.  For each it connects, with a session timeout of 10 s, and prints ``ready``.  When it has read the line ``go``,
it takes the lock TURNS times and holds it for HOLD each time.  Afterwards it prints a line for each turn:
``ACQUIRE_CALLED ACQUIRED RELEASE_CALLED RELEASED``, in nanoseconds of CLOCK_MONOTONIC, which the processes of one
machine share.  It ends its session and prints ``done``.  Anything else is a failure.
"""

from typing import Final

from bench.turns import Order, Turn

READY: Final = "ready"
GO: Final = "go"
DONE: Final = "done"


def order_line(order: Order) -> str:
    """Return the line of an order."""
    return f"{order.host}:{order.port} {order.lock} {order.turns} {order.hold!r}"


def parsed_order(line: str, contestant: str) -> Order:
    """Return the order in a line.

    Raises:
        ValueError: if the line is not an order.
    """
    server, lock, turns, hold = line.split()
    host, _, port = server.rpartition(":")
    return Order(contestant, host, int(port), lock, int(turns), float(hold))


def turn_line(turn: Turn) -> str:
    """Return the line of a turn."""
    return f"{turn.acquire_called} {turn.acquired} {turn.release_called} {turn.released}"


def parsed_turn(line: str) -> Turn:
    """Return the turn in a line.

    Locks of other clients have no fencing token, so the turns are in the order of the times at which the lock was
    acquired: that time is used as the token.

    Raises:
        ValueError: if the line is not a turn.
    """
    acquire_called, acquired, release_called, released = map(int, line.split())
    return Turn(acquire_called, acquired, release_called, released, acquired)
