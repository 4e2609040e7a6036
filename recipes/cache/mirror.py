"""The decisions of a cache: given watch events and the answers to reads, it says what to read next and what changed.

Pure: no socket, no clock, no event loop.  Events and answers must be given in the order in which they came from the
server, with one exception: an event may be given before answers that came before it, but never after an answer that
came after it.

The rules:
- An event says that a node changed, but not to what; so the node is read.  A deletion needs no read.
- Each event and each Stat has a zxid, so that the mirror can tell which is newer.  A node is read again only if an
  event is newer than what is known, and an answer older than what is known is dropped: after a reconnect it may come
  from a server that lags behind.
- Children are listed only where events may have been missed: at the beginning and after a resync.  Otherwise each new
  child has an event of its own.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from zkwire import Node, NoNodeError, ServerError, Stat, WatchEvent, WatchEventType, join_path

# Stands for the zxid of an event from a server that sends none: later than anything that was read.
_UNKNOWN_ZXID: Final = 1 << 63


@dataclass(slots=True)
class CacheChange:
    """A change of the node at `path`, from the state `before` (None: missing) to `after` (None: missing).

    A node that was deleted and created again between two reads gives a single change; its `stat.czxid` then differs.
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
    """A read of a node: its data and Stat and, if `lists`, the names of its children in the same request."""

    path: str
    lists: bool


class Answer(NamedTuple):
    """The answer to a Question: the node and the names of its children (none if not asked for), or errors."""

    node: Node | ServerError
    names: Sequence[str] | ServerError = ()


@dataclass(slots=True)
class _Read:
    """A read under way, and which events came for its node since it was sent."""

    newest_event: int = 0  # zxid
    deletion: int = 0  # zxid of the last deletion
    must_repeat: bool = False  # events may have been missed, or children must be listed too


class Mirror:
    """The known nodes of a tree.

    Always true: a node is in the mirror only if its parent is; a state in the mirror never gives way to an older one,
    except at the beginning of a new session; every node that must be read again is wanted or being read.

    Args:
        root: The path of the uppermost node.
        depth: How many levels below it belong to the mirror, None for all.
        where: Whether a node below it belongs to the mirror, given its path; asked only if its parent does.
    """

    def __init__(self, root: str, depth: int | None = None, where: Callable[[str], bool] | None = None) -> None:
        self.root = root
        self.depth = depth
        self._where: Callable[[str], bool] = where or (lambda path: True)
        self.nodes: dict[str, Node] = {}
        self._names: dict[str, set[str]] = {}  # of the children of each node
        self._wanted: dict[str, None] = {root: None}  # to be read, in this order
        self._reading: dict[str, _Read] = {}
        # Nodes that may have children that no event has reported: their children must be listed.
        self._unlisted: set[str] = {root}
        # Nodes whose known state was read in a former session, and which were not read in this one yet.
        self._from_former_session: set[str] = set()

    @property
    def is_complete(self) -> bool:
        """Whether everything is known that existed when the events began, so that only single changes are wanted."""
        return not self._unlisted

    @property
    def has_questions(self) -> bool:
        """Whether there is something to read."""
        return bool(self._wanted)

    def children(self, path: str) -> set[str] | None:
        """Return the names of the node's children; None if the node or its children are not in the mirror."""
        return self._names.get(path, set()) if path in self.nodes and self._has_room_below(path) else None

    # -- events -------------------------------------------------------------------------------------------------------

    def handle_event(self, event: WatchEvent) -> list[CacheChange]:
        """Take a watch event; return the changes that follow from it without a read."""
        path, zxid = event.path, event.zxid or _UNKNOWN_ZXID
        parent = _parent(path)
        if event.type is not WatchEventType.CHANGED:
            self._want(parent, zxid)  # its Stat counts its children
        if not self._has_room_below(parent) and path != self.root:
            return []
        if event.type is WatchEventType.DELETED:
            return self._handle_deletion(path, zxid)
        # If the parent is not known, it is left out, or a listing will find it, and then this node.
        if path == self.root or (self._is_covered(parent) and (self._is_covered(path) or self._where(path))):
            # CHANGED for an unknown node: the event of its creation was missed, and so may be those of its children.
            missed_creation = event.type is WatchEventType.CHANGED and not self._is_covered(path)
            self._want(path, zxid, lists=missed_creation, may_be_new=True)
        return []

    def _handle_deletion(self, path: str, zxid: int) -> list[CacheChange]:
        known = self.nodes.get(path)
        is_older = known is not None and known.stat.czxid >= zxid
        # In another session the ensemble may have lost its data: its zxids say nothing about the former ones.
        if is_older and path not in self._from_former_session:
            return []  # the event is about an earlier node at this path
        # There is nothing to read any more: if the node is created again, another event comes.
        self._wanted.pop(path, None)
        self._unlisted.discard(path)
        read = self._reading.get(path)
        if read is not None:
            read.newest_event, read.deletion, read.must_repeat = 0, zxid, False
        return self._remove(path)

    def resync(self, *, is_new_session: bool = False) -> None:
        """Have everything read again, because events may have been missed.

        Args:
            is_new_session: Whether another session has begun.  Its server has seen everything that former sessions
                showed, unless the ensemble has lost its data and its zxids have begun again.  In both cases the next
                answer is right, even if its zxid is smaller than the known one.
        """
        if is_new_session:
            self._from_former_session.update(self.nodes, self._reading)
        self._wanted = dict.fromkeys([self.root, *self.nodes, *self._wanted])
        for path, read in self._reading.items():
            read.must_repeat = True
            self._wanted.pop(path, None)
        self._unlisted.update(self._wanted, self._reading)

    # -- reads --------------------------------------------------------------------------------------------------------

    def next_questions(self, most: int) -> list[Question]:
        """Return what to read next, at most `most` nodes; each question must be answered or given up."""
        questions = [
            Question(path, path in self._unlisted and self._has_room_below(path))
            for path in itertools.islice(self._wanted, most)
        ]
        for path, _ in questions:
            del self._wanted[path]
            self._reading[path] = _Read()
        return questions

    def give_up(self, questions: Sequence[Question]) -> None:
        """Record that these reads have failed; the nodes are wanted again."""
        for question in questions:
            del self._reading[question.path]
            self._wanted[question.path] = None

    def handle_answer(self, question: Question, answer: Answer) -> list[CacheChange]:
        """Take the answer to a question; return the changes that it shows."""
        path = question.path
        read = self._reading.pop(path)
        if read.must_repeat:
            self._wanted[path] = None
        else:
            self._unlisted.discard(path)
        is_from_former_session = path in self._from_former_session
        if not read.must_repeat:
            self._from_former_session.discard(path)
        if isinstance(answer.node, ServerError):  # the node is missing, or this client may not read it
            if read.newest_event:
                self._wanted[path] = None
                if not isinstance(answer.node, NoNodeError):
                    self._unlisted.add(path)  # it may be readable by now, with children that no event has reported
            return self._remove(path)
        stat = answer.node.stat
        if _newest_zxid(stat) < read.newest_event:
            self._wanted[path] = None
        if _newest_zxid(stat) < read.deletion:
            return []  # the node was read before its deletion
        if path != self.root and _parent(path) not in self.nodes:
            # The parent is not known yet, or was removed meanwhile.  Read it first; its listing then finds this node.
            if not read.must_repeat:
                self._wanted.pop(path, None)
                self._want(_parent(path), _UNKNOWN_ZXID, lists=True, may_be_new=True)
            return []
        changes = self._put(path, answer.node, accept_older=is_from_former_session)
        if not isinstance(answer.names, ServerError):
            for name in answer.names:
                child = join_path(path, name)
                if not self._is_covered(child) and self._where(child):
                    self._wanted[child] = None
                    self._unlisted.add(child)
        return changes

    # -- the tree -----------------------------------------------------------------------------------------------------

    def _has_room_below(self, path: str) -> bool:
        """Return whether the children of `path` belong to the mirror."""
        if self.depth is None:
            return True
        level = 0 if path == self.root else path.count("/") - (self.root.count("/") if self.root != "/" else 0)
        return level < self.depth

    def _is_covered(self, path: str) -> bool:
        """Return whether `path` is known or will be read; otherwise a listing will find it and then its children."""
        return path in self.nodes or path in self._wanted or path in self._reading

    def _want(self, path: str, zxid: int, *, lists: bool = False, may_be_new: bool = False) -> None:
        """Have `path` read in its state at `zxid` or later, if what is known is older.

        Args:
            lists: Whether its children must be listed too.
            may_be_new: Whether to read it even if it is not in the mirror.
        """
        known = self.nodes.get(path)
        read = self._reading.get(path)
        if lists:
            self._unlisted.add(path)
        if read is not None:
            # Its answer decides whether another read is necessary.
            read.newest_event = max(read.newest_event, zxid)
            read.must_repeat |= lists
        elif may_be_new if known is None else _newest_zxid(known.stat) < zxid:
            self._wanted[path] = None

    def _put(self, path: str, node: Node, *, accept_older: bool = False) -> list[CacheChange]:
        before = self.nodes.get(path)
        if before is not None and _newest_zxid(node.stat) < _newest_zxid(before.stat) and not accept_older:
            return []
        self.nodes[path] = node
        if before is None:
            if path != self.root:
                self._names.setdefault(_parent(path), set()).add(_name(path))
        elif not differs(before, node):
            return []  # only the set of its children has changed, or nothing
        return [CacheChange(path, before, node)]

    def _remove(self, path: str) -> list[CacheChange]:
        """Remove the node and everything below it; return the changes, the lowest nodes first."""
        if path not in self.nodes:
            return []
        doomed, changes = [path], []
        for each in doomed:
            doomed.extend(join_path(each, name) for name in self._names.get(each, ()))
        for each in reversed(doomed):
            changes.append(CacheChange(each, self.nodes.pop(each), None))
            self._names.pop(each, None)
            if each not in self._reading:
                self._from_former_session.discard(each)
        if path != self.root:
            self._names[_parent(path)].remove(_name(path))
        return changes


def differs(before: Node | None, after: Node | None) -> bool:
    """Return whether the two states of a node differ in more than the Stat's account of its children and its ACL."""
    if before is None or after is None:
        return before is not after
    # The data too: after an ensemble has lost its data, the same zxids may come again with other data.
    return (before.stat.czxid, before.stat.mzxid, before.data) != (after.stat.czxid, after.stat.mzxid, after.data)


def _newest_zxid(stat: Stat) -> int:
    """Return the zxid of the newest change in `stat`, of the node's data or of the set of its children."""
    return max(stat.mzxid, stat.pzxid)


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _name(path: str) -> str:
    return path.rpartition("/")[2]
