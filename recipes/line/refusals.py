"""Transient refusals: they say something about the server's present state, and nothing about the lock.

The server is overloaded, for example, or has no quorum for the moment.  A client that waits in a line asks again after
a pause, and keeps its place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from zkwire import ServerError

_PAUSE: Final = 0.1  # seconds


def is_transient(answer: object) -> bool:
    """Return whether `answer`, a result or an error, is a refusal after which the same request may succeed."""
    return isinstance(answer, ServerError) and answer.is_transient


def any_transient(answers: Iterable[object]) -> bool:
    """Return whether one of `answers` is a transient refusal."""
    return any(map(is_transient, answers))


async def pause() -> None:
    """Wait until it is time to ask again."""
    await asyncio.sleep(_PAUSE)
