"""A stream of the states of a session."""

from __future__ import annotations

import asyncio
from collections import deque
from types import TracebackType
from typing import Self
from weakref import ref

from zkwire.session.event_loop import check_loop
from zkwire.session.states import SessionState, States


class StateStream:
    """A stream of the session's state now and of every later one; it ends after CLOSED.

    Iterate it in one task: `async for state in zk.states()`.  A slow reader misses no state.  To leave a loop, `break`
    is enough; a stream that is kept in a variable must be closed: by `close()`, by `async with` or by
    contextlib.aclosing.
    """

    def __init__(self, source: States, loop: asyncio.AbstractEventLoop) -> None:
        self._source = source
        self._loop = loop
        self._states = deque([source.now])
        self._waiter: asyncio.Future[None] | None = None
        self._is_ended = False
        # The session keeps its listeners.  A strong reference from there would keep a stream that was left by `break`
        # alive, and growing, until the session ends.
        weak_self = ref(self)

        def add_state(state: SessionState) -> None:
            stream = weak_self()
            if stream is not None:
                stream._add(state)

        self._listener = add_state
        source.listen(add_state)

    def __del__(self) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def aclose(self) -> None:
        """Call `close`; for contextlib.aclosing."""
        self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionState:
        if self._waiter is not None:
            raise RuntimeError("another task waits for the next state already: call zk.states again")
        while not self._states:
            if self._is_ended:
                raise StopAsyncIteration
            check_loop(self._loop)
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        state = self._states.popleft()
        if state is SessionState.CLOSED:
            self.close()
        return state

    def close(self) -> None:
        """End the iteration and stop listening to the session."""
        self._is_ended = True
        self._states.clear()
        self._source.unlisten(self._listener)
        self._wake()

    def _add(self, state: SessionState) -> None:
        self._states.append(state)
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
