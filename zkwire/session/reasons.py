"""Reasons in messages: many errors of asyncio and of sockets have no text."""

from __future__ import annotations

from typing import Final

_REASONS: Final[dict[type[BaseException], str]] = {
    TimeoutError: "no answer in time",
    ConnectionResetError: "the connection was reset",
    ConnectionAbortedError: "the connection was aborted",
    ConnectionRefusedError: "the connection was refused",
    BrokenPipeError: "the connection was closed",
}


def reason_of(error: BaseException) -> str:
    """Return the text of `error`, and words for its class if it has none."""
    return str(error) or _REASONS.get(type(error), f"{type(error).__name__} without a text")
