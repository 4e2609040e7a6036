"""The server's watches: which connection watches which path, and which connections get an event.

Knows watchers as opaque, hashable objects and sends nothing: each trigger returns the watchers that get an event.
The three kinds of watch are independent of one another on one path, as on servers of 3.9.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, Generic, TypeVar

from zkwire.wire.requests import WatcherType

ONE_SHOT: Final = 1
PERSISTENT: Final = 2
RECURSIVE: Final = 4
_ALL: Final = ONE_SHOT | PERSISTENT | RECURSIVE

W = TypeVar("W")


class WatchTable(Generic[W]):
    """One table of watches: the watchers of each path, and as bits the kinds of watch that each has there."""

    def __init__(self) -> None:
        self.by_path: dict[str, dict[W, int]] = {}
        self.by_watcher: dict[W, set[str]] = {}
        self._recursive = 0

    def add(self, path: str, watcher: W, kind: int) -> None:
        """Set a watch; setting the same one twice changes nothing."""
        there = self.by_path.setdefault(path, {})
        kinds = there.get(watcher, 0)
        if not kinds:
            self.by_watcher.setdefault(watcher, set()).add(path)
        self._recursive += bool(kind & ~kinds & RECURSIVE)
        there[watcher] = kinds | kind

    def has(self, path: str, watcher: W, kinds: int) -> bool:
        """Return whether `watcher` has a watch of one of `kinds` on `path`."""
        return bool(self.by_path.get(path, {}).get(watcher, 0) & kinds)

    def remove(self, path: str, watcher: W, kinds: int) -> bool:
        """Remove the watches of `kinds`; return whether there was one."""
        there = self.by_path.get(path, {})
        before = there.get(watcher, 0)
        gone = before & kinds
        if not gone:
            return False
        self._recursive -= bool(gone & RECURSIVE)
        if before != gone:
            there[watcher] = before & ~gone
            return True
        del there[watcher]
        if not there:
            del self.by_path[path]
        paths = self.by_watcher[watcher]
        paths.discard(path)
        if not paths:
            del self.by_watcher[watcher]
        return True

    def forget(self, watcher: W) -> None:
        """Remove all watches of `watcher`."""
        for path in list(self.by_watcher.get(watcher, ())):
            self.remove(path, watcher, _ALL)

    def trigger(self, path: str) -> list[W]:
        """Return the watchers of `path`, and use up the one-shot watches on it."""
        found: dict[W, None] = {}
        there = self.by_path.get(path)
        if there:
            for watcher, kinds in list(there.items()):
                found[watcher] = None
                if kinds & ONE_SHOT:
                    self.remove(path, watcher, ONE_SHOT)
        if self._recursive:
            for above in _above(path):
                for watcher, kinds in self.by_path.get(above, {}).items():
                    if kinds & RECURSIVE:
                        found[watcher] = None
        return list(found)


def _above(path: str) -> Iterable[str]:
    while path not in ("/", ""):
        path = path.rpartition("/")[0] or "/"
        yield path


class Watches(Generic[W]):
    """The two tables of a server: `data` for a node itself, `child` for its children."""

    def __init__(self) -> None:
        self.data: WatchTable[W] = WatchTable()
        self.child: WatchTable[W] = WatchTable()

    def add_persistent(self, path: str, watcher: W) -> None:
        """Set a watch on every change of the node `path`, until it is removed."""
        self.data.add(path, watcher, PERSISTENT)
        self.child.add(path, watcher, PERSISTENT)

    def add_recursive(self, path: str, watcher: W) -> None:
        """Set a watch on the node `path` and all below it, until it is removed."""
        self.data.add(path, watcher, RECURSIVE)

    def has(self, path: str, watcher: W, kind: WatcherType) -> bool:
        """Return whether `watcher` has a watch of that kind on `path`."""
        return any(table.has(path, watcher, kinds) for table, kinds in self._where(kind))

    def remove(self, path: str, watcher: W, kind: WatcherType) -> bool:
        """Remove the watches of that kind; return whether there was one."""
        found = [table.remove(path, watcher, kinds) for table, kinds in self._where(kind)]
        return any(found)

    def forget(self, watcher: W) -> None:
        """Remove all watches of `watcher`."""
        self.data.forget(watcher)
        self.child.forget(watcher)

    def deleted(self, path: str) -> tuple[Collection[W], Collection[W]]:
        """Return the watchers of a deleted node itself, and the other watchers, which have watched its children."""
        found = self.data.trigger(path)
        return found, [watcher for watcher in self.child.trigger(path) if watcher not in found]

    def _where(self, kind: WatcherType) -> list[tuple[WatchTable[W], int]]:
        match kind:
            case WatcherType.CHILDREN:
                return [(self.child, ONE_SHOT)]
            case WatcherType.DATA:
                return [(self.data, ONE_SHOT)]
            case WatcherType.PERSISTENT:
                return [(self.data, PERSISTENT), (self.child, PERSISTENT)]
            case WatcherType.PERSISTENT_RECURSIVE:
                return [(self.data, RECURSIVE)]
        return [(self.data, _ALL), (self.child, _ALL)]
