"""The stream of a session's states."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Self
from weakref import ref

from zkwire.session.states import SessionState, States


class StateStream:
    """The session's state now and every later one, none left out; ends behind CLOSED.

    Iterate it in one task: `async for state in zk.states()`.  A slow reader misses nothing.  Leave by `break` as you
    like; who keeps the stream in a variable calls `close()`.
    """

    def __init__(self, source: States) -> None:
        self._source = source
        self._states = deque([source.now])
        self._waiter: asyncio.Future[None] | None = None
        self._ended = False
        us = ref(self)  # a stream that was left by `break` must not be kept, and told, for ever

        def tell(state: SessionState) -> None:
            stream = us()
            if stream is not None:
                stream._changed(state)

        self._listener = tell
        source.listen(tell)

    def __del__(self) -> None:
        self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionState:
        while not self._states:
            if self._ended:
                raise StopAsyncIteration
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        state = self._states.popleft()
        if state is SessionState.CLOSED:
            self._ended = True
            self.close()
        return state

    def close(self) -> None:
        """Stop listening."""
        self._source.unlisten(self._listener)

    def _changed(self, state: SessionState) -> None:
        self._states.append(state)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
