"""The server's watches: which connection watches which path, and which connections get an event.

Knows watchers as opaque, hashable objects and sends nothing: each trigger returns the watchers that get an event.
The kinds of watch are independent of one another on one path, as on servers of 3.9.
"""

from collections.abc import Iterator
from typing import Final, Generic, TypeVar

from zkwire.wire.requests import WatcherType

# One bit for each kind of watch.  CHILD and DATA are used up by their first event, the others stay.
CHILD: Final = 1
DATA: Final = 2
PERSISTENT: Final = 4
RECURSIVE: Final = 8
KINDS: Final[dict[int, int]] = {
    WatcherType.CHILDREN: CHILD,
    WatcherType.DATA: DATA,
    WatcherType.ANY: CHILD | DATA | PERSISTENT | RECURSIVE,
    WatcherType.PERSISTENT: PERSISTENT,
    WatcherType.PERSISTENT_RECURSIVE: RECURSIVE,
}
# The kinds that see a change of a node itself, and of the list of its children.
SEE_DATA: Final = DATA | PERSISTENT | RECURSIVE
SEE_CHILDREN: Final = CHILD | PERSISTENT

W = TypeVar("W")


class Watches(Generic[W]):
    """All watches: the watchers of each path, and as bits the kinds of watch that each has there."""

    def __init__(self) -> None:
        self.by_path: dict[str, dict[W, int]] = {}

    def add(self, path: str, watcher: W, kind: int) -> None:
        """Set a watch; setting the same one twice changes nothing."""
        there = self.by_path.setdefault(path, {})
        there[watcher] = there.get(watcher, 0) | kind

    def has(self, path: str, watcher: W, kinds: int) -> bool:
        """Return whether `watcher` has a watch of one of `kinds` on `path`."""
        return bool(self.by_path.get(path, {}).get(watcher, 0) & kinds)

    def remove(self, path: str, watcher: W, kinds: int) -> bool:
        """Remove the watches of `kinds`; return whether there was one."""
        there = self.by_path.get(path, {})
        before = there.get(watcher, 0)
        gone = before & kinds
        if gone:
            there[watcher] = before & ~gone
            if before == gone:
                del there[watcher]
                if not there:
                    del self.by_path[path]
        return bool(gone)

    def forget(self, watcher: W) -> None:
        """Remove all watches of `watcher`."""
        for path in [path for path, there in self.by_path.items() if watcher in there]:
            self.remove(path, watcher, KINDS[WatcherType.ANY])

    def trigger(self, path: str, kinds: int) -> list[W]:
        """Return the watchers that see an event for `path`, and use up their one-shot watches.

        Args:
            path: The path of the event.
            kinds: SEE_DATA or SEE_CHILDREN.
        """
        found = {watcher: None for watcher, has in self.by_path.get(path, {}).items() if has & kinds}
        for watcher in found:
            self.remove(path, watcher, kinds & (DATA | CHILD))
        if kinds & RECURSIVE:
            for above in _above(path):
                found |= {watcher: None for watcher, has in self.by_path.get(above, {}).items() if has & RECURSIVE}
        return list(found)

    def deleted(self, path: str) -> list[W]:
        """Return the watchers of a deleted node itself, then those that have only watched its children."""
        return list(dict.fromkeys([*self.trigger(path, SEE_DATA), *self.trigger(path, SEE_CHILDREN)]))

    def seeing(self, kinds: int) -> Iterator[tuple[str, W]]:
        """Yield each path with each watcher that has a watch of one of `kinds` there."""
        for path, there in self.by_path.items():
            for watcher, has in there.items():
                if has & kinds:
                    yield path, watcher


def _above(path: str) -> Iterator[str]:
    while path not in ("/", ""):
        path = path.rpartition("/")[0] or "/"
        yield path
