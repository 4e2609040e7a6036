"""The store that the locks of a run protect: a file that all processes share, and that refuses stale fencing tokens.

A holder reads a number and writes it back plus one.  A read with a token counts as seen, so that the former holder can
write no more.  The file is the store's journal, too; a process that is killed leaves it whole.
"""

import fcntl
import os
from pathlib import Path

from tests.chaos.journal import Journal, Reader


class StaleTokenError(Exception):
    """The store has seen a greater token than the token of the write."""


class Store:
    """The numbers, by name, with the greatest token that was seen for each.

    Args:
        folder: The folder of the journals.
        author: The name of this process.
    """

    def __init__(self, folder: Path, author: str) -> None:
        self._lock = os.open(folder / "store.lock", os.O_WRONLY | os.O_CREAT)
        self._journal = Journal(folder / "store.jsonl", author)
        self._reader = Reader(folder, "store.jsonl")
        self._values: dict[str, int] = {}
        self._tokens: dict[str, int] = {}

    def answer(self, name: str, token: int | None, value: int | None = None) -> int:
        """Return the number, after writing `value` if it is given; `token` is None for a reader, which changes nothing.

        Raises:
            StaleTokenError: if a greater token was seen.
        """
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        try:
            for record in self._reader.new():
                if record.what != "turned away":
                    self._tokens[record.name] = record["token"]
                    self._values[record.name] = record.get("value", self._values.get(record.name, 0))
            greatest = self._tokens.get(name, 0)
            if token is not None and token < greatest:
                self._journal.write("turned away", name=name, token=token, greatest=greatest)
                raise StaleTokenError(name)
            if value is not None:
                self._journal.write("stored", name=name, token=token, value=value)
                return value
            if token is not None:
                self._journal.write("seen", name=name, token=token)
            return self._values.get(name, 0)
        finally:
            fcntl.flock(self._lock, fcntl.LOCK_UN)
