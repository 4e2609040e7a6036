"""Warnings about nodes that are not a recipe's own: each node is reported once, by its path."""

from __future__ import annotations

import logging
from typing import Final

# A client that creates nodes without end must not fill the memory: beyond so many, the oldest may be reported again.
_MOST_REMEMBERED: Final = 1000
_LONGEST_PATH: Final = 300  # characters of a path that are logged; a server takes names of up to a megabyte


class Notices:
    """Logs a warning about each node at most once.

    Arguments: `log`, the logger of the recipe's module; `what`, the recipe and its path, which begin each warning.
    """

    def __init__(self, log: logging.Logger, what: str) -> None:
        self._log = log
        self._what = what
        self._reported: dict[str, None] = {}

    def report(self, path: str, found: str) -> None:
        """Log what was found at `path`, and what the recipe does about it, unless that path was reported before."""
        if path in self._reported:
            return
        if len(self._reported) >= _MOST_REMEMBERED:
            del self._reported[next(iter(self._reported))]
        self._reported[path] = None
        shown = path if len(path) <= _LONGEST_PATH else f"{path[:_LONGEST_PATH]}..."
        self._log.warning("%s: %s %s", self._what, shown, found)
