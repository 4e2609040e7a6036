"""What all streams of the client have in common, and the stream of the states of a session."""

import asyncio
from abc import abstractmethod
from collections import deque
from typing import Any, Generic, Self, TypeVar
from weakref import ref

from zkwire.client.watch import wake
from zkwire.session.observer import SessionState, States
from zkwire.session.transport import check_loop

T = TypeVar("T")


class Stream(Generic[T]):
    """The base of all streams: one task iterates it, and it can be closed.

    Args:
        loop: The event loop of the session.
        noun: What a stream gives, for error messages.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, noun: str) -> None:
        self._loop = loop
        self._noun_and_path = noun
        self._waiter: asyncio.Future[Any] | None = None
        self._is_iterated = False
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self.close()

    async def aclose(self) -> None:
        """Call `close`; for contextlib.aclosing."""
        self.close()

    def close(self) -> None:
        """End the iteration, and give up what the stream has set here and on the server, without waiting for it."""
        self._is_closed = True
        self._wake()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        if self._is_iterated:
            raise RuntimeError(f"another task waits for the next {self._noun_and_path} already: make another stream")
        self._is_iterated = True
        try:
            return await self._next()
        finally:
            self._is_iterated = False

    @abstractmethod
    async def _next(self) -> T:
        """Return the next item, or raise StopAsyncIteration once the stream is closed."""

    async def _wait(self) -> None:
        """Wait for `_wake`."""
        check_loop(self._loop)
        self._waiter = self._loop.create_future()
        await self._waiter

    def _wake(self, _: object = None) -> None:
        wake(self._waiter)


class StateStream(Stream[SessionState]):
    """A stream of the session's state now and of every later one; it ends after CLOSED.

    Iterate it in one task: ``async for state in zk.states()``.  A slow reader misses no state.  To leave a loop,
    ``break`` is enough; a stream that is kept in a variable must be closed: by `close()`, by ``async with`` or by
    contextlib.aclosing.
    """

    def __init__(self, source: States, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop, "state")
        self._source = source
        self._states = deque([source.now])
        # The session keeps its listeners.  A strong reference from there would keep a stream that was left by `break`
        # alive, and growing, until the session ends.
        weak_self = ref(self)

        def add_state(state: SessionState) -> None:
            stream = weak_self()
            if stream is not None:
                stream._states.append(state)

        self._listener = add_state
        source.listen(add_state)

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """End the iteration and stop listening to the session."""
        self._states.clear()
        self._source.unlisten(self._listener)
        super().close()

    async def _next(self) -> SessionState:
        while not self._states:
            if self._is_closed:
                raise StopAsyncIteration
            # A task that waits is kept alive only by what can wake it: meanwhile the session holds this stream.
            self._source.listen(self._wake)
            try:
                await self._wait()
            finally:
                self._source.unlisten(self._wake)
        state = self._states.popleft()
        if state is SessionState.CLOSED:
            self.close()
        return state
