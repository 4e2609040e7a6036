"""Waits that several recipes share, limited by `within`."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final, TypeVar

from zkwire import Client, SessionState

T = TypeVar("T")

# Seconds in which a caller that is leaving waits for an answer that it can do without, as for the end of a guaranteed
# delete: an ensemble that is down must not keep a program from ending.
LEAVES_WITHIN: Final = 1.0


class Bound:
    """The limit of one wait; made by `bounded`.

    Attributes:
        is_one_look: Whether the limit is 0 seconds.
        limit: The timer.
    """

    def __init__(self, zk: Client, within: float | None, what: str) -> None:
        self.is_one_look: bool = within == 0
        self._zk = zk
        self._what = f"{what} within {within} s"
        self.limit: asyncio.Timeout = asyncio.timeout(within or None)

    def must_wait(self) -> None:
        """Record that the caller has asked once, and has to wait.

        Raises:
            TimeoutError: if the limit is 0 seconds; with any other limit this does nothing.
        """
        if self.is_one_look:
            raise self.not_in_time()

    def not_in_time(self) -> TimeoutError:
        """Return the error when the time is up."""
        return TimeoutError(f"{self._what}{describe_outage(self._zk)}")

    async def uncut(self, work: Callable[[], Awaitable[T]]) -> T:
        """Return the result of `work`, which the limit does not cut off; it goes on after a result that is false.

        For one write: of one that is cut off the caller cannot know whether it was carried out.  Nothing is begun after
        the limit.
        """
        until = self.limit.when()
        while until is not None and until <= asyncio.get_running_loop().time():
            await asyncio.sleep(0)  # it has passed since the last such work: let it cancel this task
        self.limit.reschedule(None)
        result = None
        try:
            result = await work()
            return result
        finally:
            if not result:
                self.limit.reschedule(until)


def describe_outage(zk: Client) -> str:
    """Return the end of the message of a wait that has ended without a connection, otherwise ""."""
    return "" if zk.state is SessionState.CONNECTED else f"; the state of the client: {zk.state.value}"


@asynccontextmanager
async def bounded(zk: Client, within: float | None, what: str) -> AsyncIterator[Bound]:
    """Limit the body to `within` seconds; None sets no limit, and 0 allows one look.

    ::

        async with bounded(zk, within, f"the barrier {path} was not removed") as bound:
            while True:
                ...                          # look: return if the barrier is gone
                bound.must_wait()            # within=0 ends here
                await watch

    One look means: the body makes the requests that show whether it has to wait, however long their answers take, and
    takes what is free.  So a limit of 0 sets no timer: the body must call `must_wait` between a look and each wait for
    other clients, or it would wait without limit.

    Args:
        what: The beginning of the error message: what did not happen in time.

    Raises:
        TimeoutError: if the time is up.  A TimeoutError of the body itself passes unchanged.
    """
    bound = Bound(zk, within, what)
    try:
        async with bound.limit:
            yield bound
    except TimeoutError:
        if not bound.limit.expired():
            raise
        raise bound.not_in_time() from None
