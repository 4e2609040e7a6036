"""A task beside the body of an `async with`: it ends with the body, and the body with it, if it fails."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from recipes.common.arguments import current_task


class BackgroundTask:
    """Runs `work` beside the present task, from now until `leave`.

    An error of the work cancels the task and is raised by `leave` in place of the cancellation, as asyncio.TaskGroup
    does, but for the group around it.
    """

    def __init__(self, work: Coroutine[Any, Any, None]) -> None:
        self._body = current_task()
        self._cancelling = self._body.cancelling()
        self._interrupted = False
        self._left = False
        self._task = asyncio.get_running_loop().create_task(work)
        self._task.add_done_callback(self._ended)

    async def leave(self, kind: type[BaseException] | None) -> None:
        """End the work, and return when it has ended.

        Arguments: `kind`, of the exception that leaves the body, None for none.
        Raises: what the work has failed with, unless the body has failed by itself.
        Cancellation: is handed on to the work, which may be clearing up, and goes on when that has ended.
        """
        self._left = True
        cancelled: asyncio.CancelledError | None = None
        while not self._task.done():
            self._task.cancel()
            try:
                await asyncio.wait([self._task])
            except asyncio.CancelledError as one:
                cancelled = one
        error = None if self._task.cancelled() else self._task.exception()
        # The cancellation that came from us ends here; one from elsewhere at the same time goes on.
        ours = self._interrupted and self._body.uncancel() <= self._cancelling and kind is asyncio.CancelledError
        if cancelled is not None:
            raise cancelled from error
        if error is not None and (ours or kind is None):
            raise error

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not self._left and not task.cancelled() and task.exception() is not None:
            self._interrupted = True
            self._body.cancel()
