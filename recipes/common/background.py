"""A task that runs beside the body of an `async with` statement: when either of them fails, both end."""

import asyncio
from abc import abstractmethod
from collections.abc import Coroutine
from typing import Any, Self

from recipes.common.checks import current_task, same_loop


class BackgroundTask:
    """A task that runs `work` beside the present task, until `leave` is called.

    If the work fails, the present task is cancelled, and `leave` raises the error of the work in place of that
    cancellation. This is what asyncio.TaskGroup does, without the exception group.
    """

    def __init__(self, work: Coroutine[Any, Any, None]) -> None:
        self._body = current_task()
        # How many cancellations of the body were requested before ours.
        self._cancelling = self._body.cancelling()
        self._has_cancelled_body = False
        self._is_leaving = False
        self._failure: BaseException | None = None
        self._task = asyncio.get_running_loop().create_task(work)
        self._task.add_done_callback(self._on_done)

    def fail(self, error: BaseException) -> None:
        """Have the body cancelled, and `error` raised by `leave`; for work that goes on until the body has ended."""
        self._failure = error
        self._cancel_body()

    def stop(self, error: BaseException) -> bool:
        """Do as `fail` if another task runs the body, and is not cancelled already; return whether another one does."""
        if self._body is asyncio.current_task():
            return False
        if self._body.cancelling() <= self._cancelling:
            self.fail(error)
        return True

    async def leave(self, kind: type[BaseException] | None) -> None:
        """Cancel the work, and return when its task has ended.

        The error of the work is raised, unless the body has failed with an error of its own.

        Args:
            kind: The class of the exception that leaves the body, None if there is none.

        Cancellation:
            Is passed on to the work, which may be cleaning up, and raised when the work has ended.
        """
        self._is_leaving = True
        cancelled: asyncio.CancelledError | None = None
        while not self._task.done():
            self._task.cancel()
            try:
                # Not `await self._task`: a cancellation of the work would look like one of this task.
                await asyncio.wait([self._task])
            except asyncio.CancelledError as cancellation:
                cancelled = cancellation
        error = self._failure or (None if self._task.cancelled() else self._task.exception())
        # Our own cancellation of the body ends here. If another one came at the same time, uncancel() returns a larger
        # number than before ours, and that other cancellation must go on.
        ours = self._has_cancelled_body and self._body.uncancel() <= self._cancelling and kind is asyncio.CancelledError
        if cancelled is not None:
            raise cancelled from error
        if error is not None and (ours or kind is None):
            raise error

    def _on_done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self._cancel_body()

    def _cancel_body(self) -> None:
        if not self._is_leaving and not self._has_cancelled_body:
            self._has_cancelled_body = True
            self._body.cancel()


class BackgroundBlock:
    """An object whose `async with` block has a background task; it may be entered again after the block.

    It is for one event loop, the first in which it is entered.

    Args:
        described: The object, for error messages.
    """

    def __init__(self, described: str) -> None:
        self._described = described
        self._loop: asyncio.AbstractEventLoop | None = None
        self._background: BackgroundTask | None = None
        self._is_entered = False  # from the beginning of `_begin` to the end of `_end`

    async def __aenter__(self) -> Self:
        self._check_loop()
        if self._is_entered:
            raise RuntimeError(f"{self._described} has been entered already")
        self._is_entered = True
        try:
            self._background = BackgroundTask(await self._begin())
        finally:
            self._is_entered = self._background is not None
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *exc_info: object) -> None:
        self._check_loop()
        background, self._background = self._background, None
        if background is None:
            raise RuntimeError(f"the block of {self._described} is left, but it was not entered")
        try:
            await background.leave(kind)
        finally:
            try:
                await self._end()
            finally:
                self._is_entered = False

    def _check_loop(self) -> None:
        self._loop = same_loop(self._loop, self._described)

    @abstractmethod
    async def _begin(self) -> Coroutine[Any, Any, None]:
        """Do what must be done before the body begins, and return the work of the background task."""

    @abstractmethod
    async def _end(self) -> None:
        """Undo what the block has done; the background task has ended."""
