"""What a cache knows of a tree: told of events and of what reads gave, it says what to read next and what has changed.

Pure: no socket, no clock, no loop.  Everything is told in the order of the wire, but for one freedom: an event may be
told ahead of answers that came before it, never behind one that came after it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from zkwire import Node, NoNodeError, ServerError, Stat, WatchEvent, WatchEventType, join_path

_UNTOLD: Final = 1 << 63  # in place of the zxid of an event by a server that sends none: later than anything read


@dataclass(slots=True)
class CacheChange:
    """A node has changed: `path`, the node `before` (None: there was none) and `after` (None: there is none).

    A node that was deleted and made again between two looks is told as one change; `stat.czxid` tells it from the old
    one.
    """

    path: str
    before: Node | None
    after: Node | None

    @property
    def type(self) -> WatchEventType:
        """CREATED, CHANGED or DELETED."""
        if self.before is None:
            return WatchEventType.CREATED
        return WatchEventType.CHANGED if self.after is not None else WatchEventType.DELETED


class Question(NamedTuple):
    """What to read of a node: its data and Stat, and, with `lists`, the names of its children in the same request."""

    path: str
    lists: bool


class Answer(NamedTuple):
    """What the reads gave: the node and the names of its children (none if they were not asked for), or errors."""

    node: Node | ServerError
    names: Sequence[str] | ServerError = ()


@dataclass(slots=True)
class _Read:
    """A read under way, and what was heard of its node since it was asked."""

    heard: int = 0  # the zxid of the last change
    deleted: int = 0  # the zxid of the last deletion
    again: bool = False  # events may be missing since


class Mirror:
    """The nodes of a tree, as far as they are known.

    Arguments: `root`, the path of the uppermost; `depth`, how many levels below it belong to the mirror, None for all.

    Holds at any time: a node is here only if the one above it is; what is here was never newer before, unless another
    session has begun since; what has to be read again is wanted or under way.
    """

    def __init__(self, root: str, depth: int | None = None) -> None:
        self.root = root
        self.depth = depth
        self.nodes: dict[str, Node] = {}
        self._names: dict[str, set[str]] = {}
        self._wanted: dict[str, None] = {root: None}  # in the order in which they are to be read
        self._reading: dict[str, _Read] = {}
        # Of whose children we have not heard since events are told: what there is below them must be listed.
        self._unlisted: set[str] = {root}
        # What a former session has shown, and nothing has been read of in this one.
        self._former: set[str] = set()

    @property
    def is_complete(self) -> bool:
        """Whether all is here that was there when the events began: what is wanted now are single changes."""
        return not self._unlisted

    @property
    def is_wanting(self) -> bool:
        """Whether there is something to ask for."""
        return bool(self._wanted)

    def children(self, path: str) -> set[str] | None:
        """The names of the node's children; None if it is not here, or its children do not belong to the mirror."""
        return self._names.get(path, set()) if path in self.nodes and self._has_room_below(path) else None

    # -- what is told -------------------------------------------------------------------------------------------------

    def heard(self, event: WatchEvent) -> list[CacheChange]:
        """Take an event; return what has changed by it alone."""
        path, zxid = event.path, event.zxid or _UNTOLD
        parent = _above(path)
        if event.type is not WatchEventType.CHANGED and path != self.root:
            self._want(parent, zxid)  # its Stat counts its children
        if not self._has_room_below(parent) and path != self.root:
            return []
        if event.type is WatchEventType.DELETED:
            return self._heard_deleted(path, zxid)
        if path == self.root or self._is_covered(parent):
            # Who changes and is not known was made unheard, and what is below it too.
            is_unheard = event.type is WatchEventType.CHANGED and not self._is_covered(path)
            self._want(path, zxid, lists=is_unheard, is_new=True)
        return []

    def _heard_deleted(self, path: str, zxid: int) -> list[CacheChange]:
        there = self.nodes.get(path)
        if there is not None and zxid != _UNTOLD and there.stat.czxid >= zxid and path not in self._former:
            return []  # that was an earlier node at this path
        # Whatever was to be learned of it: it is gone, and if it comes again an event will tell.
        self._wanted.pop(path, None)
        self._unlisted.discard(path)
        read = self._reading.get(path)
        if read is not None:
            read.heard, read.deleted, read.again = 0, zxid, False
        return self._remove(path)

    def resync(self, *, is_new_session: bool = False) -> None:
        """Take note that events may be missing: everything is to be read again.

        Arguments: `is_new_session`, whether another session has begun: its server has seen whatever former ones have
        shown, or else the ensemble has lost its data and counts its changes anew.  What is read next is right then,
        though its zxid be a smaller one.
        """
        if is_new_session:
            self._former.update(self.nodes, self._reading)
        self._wanted = dict.fromkeys([self.root, *self.nodes, *self._wanted])
        for path, read in self._reading.items():
            read.again = True
            self._wanted.pop(path, None)
        self._unlisted.update(self._wanted, self._reading)

    # -- what to read -------------------------------------------------------------------------------------------------

    def ask(self, most: int) -> list[Question]:
        """Return what to read next, `most` nodes at the most; each must be answered, or given up."""
        asked = [
            Question(path, path in self._unlisted and self._has_room_below(path))
            for path in itertools.islice(self._wanted, most)
        ]
        for path, _ in asked:
            del self._wanted[path]
            self._reading[path] = _Read()
        return asked

    def give_up(self, asked: Sequence[Question]) -> None:
        """Take note that these reads gave nothing; they are wanted again."""
        for question in asked:
            del self._reading[question.path]
            self._wanted[question.path] = None

    def answered(self, question: Question, answer: Answer) -> list[CacheChange]:
        """Take what a read gave; return what has changed by it."""
        path = question.path
        read = self._reading.pop(path)
        if read.again:
            self._wanted[path] = None
        else:
            self._unlisted.discard(path)
        is_former = path in self._former
        if not read.again:
            self._former.discard(path)
        if isinstance(answer.node, ServerError):  # there is no such node, or none that we may read
            if read.heard:
                self._wanted[path] = None
                if not isinstance(answer.node, NoNodeError):
                    self._unlisted.add(path)  # it may be readable by now, with children of which no event has told
            return self._remove(path)
        stat = answer.node.stat
        if _seen(stat) < read.heard:
            self._wanted[path] = None
        if _seen(stat) < read.deleted:
            return []  # from before the deletion, as far as can be told
        if path != self.root and _above(path) not in self.nodes:
            # Its turn comes when the one above it is known, which then has to be listed for its sake.
            if not read.again:
                self._wanted.pop(path, None)
                self._want(_above(path), _UNTOLD, lists=True, is_new=True)
            return []
        changes = self._put(path, answer.node, whatever_its_zxid=is_former)
        if not isinstance(answer.names, ServerError):
            for name in answer.names:
                below = join_path(path, name)
                if below not in self.nodes and below not in self._wanted and below not in self._reading:
                    self._wanted[below] = None
                    self._unlisted.add(below)
        return changes

    # -- within -------------------------------------------------------------------------------------------------------

    def _has_room_below(self, path: str) -> bool:
        if self.depth is None:
            return True
        level = 0 if path == self.root else path.count("/") - (self.root.count("/") if self.root != "/" else 0)
        return level < self.depth

    def _is_covered(self, path: str) -> bool:
        """Whether `path` is known or about to be; otherwise it will be found in a list, and its children after it."""
        return path in self.nodes or path in self._wanted or path in self._reading

    def _want(self, path: str, zxid: int, *, lists: bool = False, is_new: bool = False) -> None:
        """Have `path` be read as it is at `zxid` or later.

        Arguments: `lists`, whether its children must be listed too; `is_new`, whether it may be one that is not here.
        """
        there = self.nodes.get(path)
        read = self._reading.get(path)
        if lists:
            self._unlisted.add(path)
        if read is not None:
            read.heard = max(read.heard, zxid)
            read.again |= lists
        elif is_new if there is None else lists or _seen(there.stat) < zxid:
            self._wanted[path] = None

    def _put(self, path: str, node: Node, *, whatever_its_zxid: bool = False) -> list[CacheChange]:
        before = self.nodes.get(path)
        if before is not None and _seen(node.stat) < _seen(before.stat) and not whatever_its_zxid:
            return []
        self.nodes[path] = node
        if before is None:
            if path != self.root:
                self._names.setdefault(_above(path), set()).add(_name(path))
        elif not is_other(before, node):
            return []  # only its children are others, or nothing
        return [CacheChange(path, before, node)]

    def _remove(self, path: str) -> list[CacheChange]:
        """Take the node out, after all that is below it: it must have gone before."""
        if path not in self.nodes:
            return []
        doomed, changes = [path], []
        for each in doomed:
            doomed.extend(join_path(each, name) for name in self._names.get(each, ()))
        for each in reversed(doomed):
            changes.append(CacheChange(each, self.nodes.pop(each), None))
            self._names.pop(each, None)
            if each not in self._reading:
                self._former.discard(each)
        if path != self.root:
            self._names[_above(path)].remove(_name(path))
        return changes


def is_other(before: Node | None, after: Node | None) -> bool:
    """Whether these are two states that a change leads from and to."""
    if before is None or after is None:
        return before is not after
    # The data too, for an ensemble that has lost its own may have counted as far again.
    return (before.stat.czxid, before.stat.mzxid, before.data) != (after.stat.czxid, after.stat.mzxid, after.data)


def _seen(stat: Stat) -> int:
    """The newest change that this Stat shows, of the node or of the set of its children."""
    return max(stat.mzxid, stat.pzxid)


def _above(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _name(path: str) -> str:
    return path.rpartition("/")[2]
