"""The journals of a run: each process appends what it does to a file of its own; together they are the history.

All processes run on one machine, so that the moments of all journals are of one clock (CLOCK_MONOTONIC).
"""

import json
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PARENT = "-"  # the author of what the parent process writes


@dataclass(frozen=True, slots=True)
class Record:
    """One line: at the moment `at`, in seconds, `author` (a client as "number.life") did `what`, with `details`."""

    at: float
    author: str
    what: str
    details: dict[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.details[name]

    def get(self, name: str, default: Any = None) -> Any:
        """Return a detail, `default` if the record has none of that name."""
        return self.details.get(name, default)

    @property
    def name(self) -> str:
        """What the record is about: a lock, a queue, an item; empty for what concerns a whole process."""
        return str(self.details.get("name", ""))

    def printed(self, start: float) -> str:
        """Return the line for a reader; `start` is the moment that counts as 0."""
        shown = "  ".join(f"{key}={_shown(key, value, start)}" for key, value in self.details.items() if key != "name")
        return f"{self.at - start:9.3f}  {self.author:>5}  {self.name:<14} {self.what:<12} {shown}".rstrip()


class Journal:
    """Appends records to the file at `path`, each in one write, so that a killed process loses none."""

    def __init__(self, path: Path, author: str) -> None:
        self._author = author
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def write(self, what: str, *, at: float | None = None, **details: Any) -> None:
        """Append a record; `at` is the moment, now by default."""
        line = {"at": time.monotonic() if at is None else at, "author": self._author, "what": what, **details}
        os.write(self._file, json.dumps(line).encode() + b"\n")

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


class Reader:
    """Reads the journals of a folder, those whose names match `pattern`, while processes still write them."""

    def __init__(self, folder: Path, pattern: str = "*.jsonl") -> None:
        self._folder = folder
        self._pattern = pattern
        self._read: dict[Path, int] = {}

    def new(self) -> list[Record]:
        """Return the records that were written since the last call, in the order of their moments."""
        records = []
        for path in sorted(self._folder.glob(self._pattern)):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                # Without the last line if it is unfinished: it is being written, or its process was killed.
                whole = file.read().rpartition(b"\n")[:2]
            self._read[path] = self._read.get(path, 0) + sum(map(len, whole))
            records += [_parsed(line) for line in whole[0].split(b"\n") if line]
        return in_order(records)


def in_order(records: Iterable[Record]) -> list[Record]:
    """Return the records in the order of their moments."""
    return sorted(records, key=lambda record: record.at)


def printed(records: Iterable[Record], start: float) -> Iterator[str]:
    """Yield the lines for a reader."""
    return (record.printed(start) for record in records)


def _parsed(line: bytes) -> Record:
    found = json.loads(line)
    return Record(found.pop("at"), found.pop("author"), found.pop("what"), found)


def _shown(key: str, value: Any, start: float) -> str:
    if key == "until" and isinstance(value, float):
        return f"{value - start:.3f}"
    if key in ("token", "session") and isinstance(value, int):
        return f"{value:#x}"
    return str(value)
