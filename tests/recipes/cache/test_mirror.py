"""The mirror's decisions, without a socket: random changes, reads, losses and orders of arrival against a model."""

import random
from collections import deque
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipes import CacheChange
from recipes.cache.mirror import Answer, Mirror, Question
from tests.support.examples import examples
from zkwire import NoAuthError, Node, NoNodeError, Stat, WatchEvent, WatchEventType

CREATED, DELETED, CHANGED = WatchEventType.CREATED, WatchEventType.DELETED, WatchEventType.CHANGED

ROOT = "/r"
# Few levels, so that whole branches are often created and deleted.
PATHS = [ROOT, "/r/a", "/r/b", "/r/a/a", "/r/a/b", "/r/b/a", "/r/a/a/a", "/r/a/a/b"]


def above(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def stat(czxid: int, mzxid: int, pzxid: int, *, children: int = 0) -> Stat:
    return Stat(czxid, mzxid, 0, 0, 0, 0, 0, 0, 0, children, pzxid)


def node(czxid: int, mzxid: int | None = None, pzxid: int | None = None) -> Node:
    return Node(b"", stat(czxid, mzxid or czxid, pzxid or czxid))


class Tree:
    """The nodes of a server, and the events of their changes."""

    def __init__(self) -> None:
        self.zxid = 100
        self.nodes: dict[str, Node] = {}

    def names(self, path: str) -> list[str]:
        return [other[len(path) + 1 :] for other in self.nodes if other != path and above(other) == path]

    def change(self, path: str, what: WatchEventType) -> WatchEvent | None:
        """Make the change at the present zxid, if it is possible; return its event."""
        if what is CREATED:
            if path in self.nodes or (path != ROOT and above(path) not in self.nodes):
                return None
            self.nodes[path] = Node(b"%d" % self.zxid, stat(self.zxid, self.zxid, self.zxid))
        elif path not in self.nodes:
            return None
        elif what is CHANGED:
            old = self.nodes[path]
            self.nodes[path] = Node(b"%d" % self.zxid, replace(old.stat, mzxid=self.zxid, version=old.stat.version + 1))
        elif self.names(path):
            return None
        else:
            del self.nodes[path]
        if what is not CHANGED and path != ROOT:
            data, old_stat = self.nodes[above(path)]
            count = len(self.names(above(path)))
            self.nodes[above(path)] = Node(data, replace(old_stat, pzxid=self.zxid, num_children=count))
        return WatchEvent(what, path, self.zxid)


class World:
    """A tree, a mirror of it, and between them a connection that is slow and breaks.

    Events may reach the mirror ahead of answers that were sent before them, because another task delivers them.
    """

    def __init__(self, rng: random.Random, gives_zxids: bool, depth: int | None, left_out: str) -> None:
        self.rng = rng
        self.tree = Tree()
        self.gives_zxids = gives_zxids
        self.depth = depth
        self.left_out = left_out  # the name of the nodes that are left out, with what is below them
        self.asked: deque[Question] = deque()  # sent by the client, and not yet carried out
        self.unanswered: list[Question] = []  # in the order in which they were asked
        self.wire: deque[WatchEvent | str | tuple[Question, Answer]] = deque()
        self.is_up = True
        self.session = self.resynced = 1
        self.mirror = Mirror(ROOT, depth, (lambda path: path.rpartition("/")[2] != left_out) if left_out else None)
        self.shown: dict[str, Node] = {}  # according to the changes
        self.newest: dict[str, int] = {}
        self.former: dict[str, Node] = {}  # known in the former session
        for _ in range(rng.randrange(12)):
            self.tree.zxid += 1
            self.tree.change(rng.choice(PATHS), CREATED)

    def step(self) -> None:
        """Do one random thing."""
        happening = [self.change] * 6 + [self.transaction, self.delete_all] + [self.ask] * 4
        happening += [self.execute] * 6 + [self.deliver] * 10 + [self.cut if self.is_up else self.connect]
        happening += [self.overflow] if self.is_up and not self.rng.randrange(5) else []
        happening += [] if self.rng.randrange(5) else [self.lose_all]
        self.rng.choice(happening)()
        self.check()

    # -- the server ---------------------------------------------------------------------------------------------------

    def send(self, event: WatchEvent | None) -> None:
        if event is None or not self.is_up:
            return
        if not self.gives_zxids:
            event = event._replace(zxid=None)
        if self.depth != 0:
            self.wire.append(event)  # by a recursive watch
        elif event.path == ROOT:
            self.wire.append(event)
        elif above(event.path) == ROOT and event.type is not CHANGED:
            self.wire.append(WatchEvent(WatchEventType.CHILDREN, ROOT, event.zxid))

    def change(self) -> None:
        self.tree.zxid += 1
        self.send(self.tree.change(self.rng.choice(PATHS), self.rng.choice([CREATED, CREATED, CHANGED, DELETED])))

    def transaction(self) -> None:
        self.tree.zxid += 1
        few = self.rng.sample(PATHS, 2)
        for _ in range(self.rng.randrange(2, 6)):
            self.send(self.tree.change(self.rng.choice(few), self.rng.choice([CREATED, DELETED, CHANGED])))

    def delete_all(self) -> None:
        for path in reversed(PATHS):
            self.tree.zxid += 1
            self.send(self.tree.change(path, DELETED))

    def execute(self) -> None:
        """Answer one question; its data and its names need not be of the same moment."""
        if not self.is_up or not self.asked:
            return
        question = self.asked.popleft()
        there = self.tree.nodes.get(question.path)
        if not self.rng.randrange(4):
            self.change()
        missing = NoNodeError(-101, question.path)
        names: Any = self.tree.names(question.path) if question.path in self.tree.nodes else missing
        self.wire.append((question, Answer(there or missing, names if question.lists else ())))

    # -- the client ---------------------------------------------------------------------------------------------------

    def is_wanted(self, path: str) -> bool:
        return not self.left_out or self.left_out not in path.removeprefix(ROOT).split("/")

    def ask(self) -> None:
        questions = self.mirror.next_questions(self.rng.choice([1, 2, 100]))
        assert all(self.is_wanted(question.path) for question in questions)
        assert not {question.path for question in questions} & {question.path for question in self.unanswered}
        self.asked.extend(questions)
        self.unanswered.extend(questions)

    def deliver(self) -> None:
        if not self.wire:
            return
        at = 0
        if self.rng.randrange(2):
            at = next((at for at, item in enumerate(self.wire) if isinstance(item, WatchEvent | str)), 0)
        item = self.wire[at]
        del self.wire[at]
        if isinstance(item, WatchEvent):
            self.changed(self.mirror.handle_event(item))
        elif isinstance(item, str):
            self.resync()
        else:
            self.unanswered.remove(item[0])
            self.changed(self.mirror.handle_answer(*item))

    def resync(self) -> None:
        is_new_session = self.session != self.resynced
        if is_new_session:
            self.newest.clear()
            self.former = self.mirror.nodes.copy()
            self.resynced = self.session
        self.mirror.resync(is_new_session=is_new_session)

    def changed(self, changes: list[CacheChange]) -> None:
        for change in changes:
            path, before, after = change.path, change.before, change.after
            assert self.shown.get(path) == before
            if after is None:
                del self.shown[path]
                assert not [other for other in self.shown if above(other) == path], "deleted before its children"
            else:
                assert path == ROOT or above(path) in self.shown, "created before its parent"
                self.shown[path] = after
        for path, there in self.mirror.nodes.items():
            seen = max(there.stat.mzxid, there.stat.pzxid)
            if there is not self.former.get(path):
                assert seen >= self.newest.get(path, 0), "older than the state shown before"
                self.newest[path] = seen
            if path in self.shown and self.shown[path].stat.mzxid == there.stat.mzxid:
                self.shown[path] = there  # only the set of its children has changed, which changes of those report

    # -- losses -------------------------------------------------------------------------------------------------------

    def cut(self) -> None:
        for _ in range(min(self.rng.randrange(6), len(self.wire))):
            self.deliver()
        self.wire.clear()
        self.is_up = False

    def connect(self) -> None:
        """Reconnect: reads are repeated, or given up with the session; then events come again."""
        self.is_up = True
        if not self.rng.randrange(3):
            self.mirror.give_up(self.unanswered)
            self.unanswered = []
        self.asked = deque(self.unanswered)
        self.wire.append("resync")

    def overflow(self) -> None:
        """More events than the client keeps: all of them are dropped."""
        self.wire = deque(item for item in self.wire if not isinstance(item, WatchEvent | str))
        self.resync()

    def lose_all(self) -> None:
        """The servers lose their data, and so the session; their zxids begin again."""
        self.cut()
        self.tree = Tree()
        self.tree.zxid = self.rng.randrange(100)
        for path in PATHS:
            if self.rng.randrange(2):
                self.tree.zxid += 1
                self.tree.change(path, CREATED)
        self.mirror.give_up(self.unanswered)
        self.unanswered = []
        self.asked.clear()
        self.session += 1
        self.is_up = True
        self.wire.append("resync")

    # -- what must hold -----------------------------------------------------------------------------------------------

    def check(self) -> None:
        assert self.shown == self.mirror.nodes
        assert self.mirror._unlisted <= self.mirror._wanted.keys() | self.mirror._reading.keys()
        for path in self.mirror.nodes:
            names = self.mirror.children(path)
            if names is not None:
                assert {f"{path}/{name}" for name in names} == {p for p in self.shown if above(p) == path}

    def settle(self) -> None:
        """Let everything under way arrive: then the mirror equals the tree."""
        if not self.is_up:
            self.connect()
        rounds = 0
        while self.wire or self.asked or self.mirror.has_questions:
            rounds += 1
            assert rounds < 50, "it reads without end"
            self.ask()
            while self.asked:
                question = self.asked.popleft()
                there = self.tree.nodes.get(question.path)
                names = self.tree.names(question.path) if there is not None and question.lists else ()
                self.wire.append((question, Answer(there or NoNodeError(-101, question.path), names)))
            while self.wire:
                self.deliver()
        self.check()
        assert self.mirror.is_complete
        level = ROOT.count("/")
        assert self.mirror.nodes == {
            path: there
            for path, there in self.tree.nodes.items()
            if self.is_wanted(path) and (self.depth is None or path.count("/") - level <= self.depth)
        }


@examples(400)
@given(
    seed=st.integers(0, 2**32),
    gives_zxids=st.booleans(),
    depth=st.sampled_from([None, None, None, 0, 1, 2]),
    left_out=st.sampled_from(["", "", "a", "b"]),
)
def test_in_the_end_the_mirror_equals_the_tree_whatever_happens(
    seed: int, gives_zxids: bool, depth: int | None, left_out: str
) -> None:
    """What is left out is neither asked for nor kept.

    At no time does it show a node without its parent, an older state than before, or a state that no change has."""
    rng = random.Random(seed)
    world = World(rng, gives_zxids, depth, left_out)
    for _ in range(4):
        for _ in range(rng.randrange(60)):
            world.step()
        world.settle()


# -- which reads are asked for ----------------------------------------------------------------------------------------


def filled(*paths: str, depth: int | None = None) -> Mirror:
    """Return a mirror of nodes that existed at the beginning, created at the zxids 1, 2, 3 ..."""
    mirror = Mirror(paths[0], depth)
    made = {path: node(number) for number, path in enumerate(paths, 1)}
    while mirror.has_questions:
        for question in mirror.next_questions(100):
            names = [path.rpartition("/")[2] for path in paths[1:] if above(path) == question.path]
            mirror.handle_answer(question, Answer(made[question.path], names if question.lists else ()))
    assert mirror.nodes == made
    assert mirror.is_complete
    return mirror


def questions_of(mirror: Mirror) -> list[str]:
    return [f"{path}{'/*' if lists else ''}" for path, lists in mirror.next_questions(100)]


@pytest.mark.parametrize(
    ("there", "depth", "events", "reads"),
    [
        pytest.param(["/r", "/r/a"], None, [(CHANGED, "/r/a")], ["/r/a"], id="a change of data"),
        pytest.param(
            ["/r", "/r/a"],
            None,
            [(CREATED, "/r/a/b"), (CREATED, "/r/a/b/c")],
            ["/r/a", "/r/a/b", "/r/a/b/c"],
            id="creations: the nodes and their parents",
        ),
        pytest.param(["/r", "/r/a"], None, [(DELETED, "/r/a")], ["/r"], id="a deletion: the parent"),
        pytest.param(
            ["/r"], None, [(CREATED, "/r/a"), (DELETED, "/r/a")], ["/r"], id="created and deleted before it is read"
        ),
        pytest.param(
            ["/r", "/r/a"],
            1,
            [(CREATED, "/r/a/b"), (CHANGED, "/r/a/b"), (CREATED, "/r/a/b/c")],
            ["/r/a"],
            id="too deep: only the number of children of the lowest",
        ),
        pytest.param(["/", "/a", "/b"], 1, [(CREATED, "/c")], ["/", "/c"], id="the root of the server"),
    ],
)
def test_events_cost_few_reads(
    there: list[str], depth: int | None, events: list[tuple[WatchEventType, str]], reads: list[str]
) -> None:
    mirror = filled(*there, depth=depth)
    for path in there:
        names = {other.rpartition("/")[2] for other in there[1:] if above(other) == path}
        assert mirror.children(path) == (names if depth is None or path == there[0] else None)
    for zxid, (what, path) in enumerate(events, 9):
        before = mirror.nodes.get(path)
        gone = what is DELETED and before is not None
        # A deletion is shown at once, without a read.
        assert mirror.handle_event(WatchEvent(what, path, zxid)) == ([CacheChange(path, before, None)] if gone else [])
    assert questions_of(mirror) == reads


@pytest.mark.parametrize("what", [CREATED, CHANGED, DELETED])
def test_an_event_that_the_known_state_or_an_answer_to_come_shows_costs_no_read(what: WatchEventType) -> None:
    mirror = filled("/r", "/r/a")
    assert mirror.handle_event(WatchEvent(what, "/r/a", 2)) == []
    assert "/r/a" not in questions_of(mirror)
    assert "/r/a" in mirror.nodes
    if what is DELETED:
        mirror.resync(is_new_session=True)  # the ensemble may have lost its data
        assert len(mirror.handle_event(WatchEvent(what, "/r/a", 2))) == 1
    if what is CHANGED:
        mirror.handle_event(WatchEvent(what, "/r/a", 9))
        [question] = mirror.next_questions(100)
        mirror.handle_event(WatchEvent(what, "/r/a", 10))
        mirror.handle_answer(question, Answer(node(2, 10)))
        assert not mirror.has_questions


def test_an_answer_from_before_a_deletion_does_not_bring_the_node_back() -> None:
    for zxid, answer in ((9, node(2, 8)), (None, node(2, 8)), (9, NoNodeError(-101))):
        mirror = filled("/r", "/r/a")
        mirror.handle_event(WatchEvent(CHANGED, "/r/a", zxid and 8))
        [question] = mirror.next_questions(100)
        mirror.handle_event(WatchEvent(DELETED, "/r/a", zxid))
        assert mirror.handle_answer(question, Answer(answer)) == []
        assert questions_of(mirror) == ["/r"]
        assert "/r/a" not in mirror.nodes


def test_a_node_whose_parent_was_missing_a_moment_before_is_found_with_its_parent() -> None:
    mirror = filled("/r")
    for path in ("/r/a", "/r/a/b"):
        mirror.handle_event(WatchEvent(CREATED, path, 9))
    _, parent, child = mirror.next_questions(100)
    mirror.handle_event(WatchEvent(CHANGED, "/r/a/b", 10))
    mirror.handle_answer(parent, Answer(NoNodeError(-101)))
    assert mirror.handle_answer(child, Answer(node(9))) == []
    assert questions_of(mirror) == ["/r/a/*"]


def test_an_answer_from_a_server_that_lags_behind_changes_nothing() -> None:
    """But the first answer of a new session is right: the ensemble may have lost its data."""
    mirror = filled("/r")
    mirror.nodes["/r"] = shown = node(1, 9)
    same, lost = Node(b"", replace(shown.stat, aversion=1)), node(1, 3)  # a change of the ACL has no zxid
    for found, is_taken in ((node(1), False), (same, True), (lost, True), (node(1), False)):
        mirror.resync(is_new_session=found is lost)
        [question] = mirror.next_questions(100)
        mirror.handle_answer(question, Answer(found))
        shown = found if is_taken else shown
        assert mirror.nodes["/r"] == shown


def test_a_node_that_may_not_be_read_is_removed() -> None:
    mirror = filled("/r", "/r/a", "/r/a/b")
    mirror.handle_event(WatchEvent(CHANGED, "/r/a", 9))
    [question] = mirror.next_questions(100)
    changes = mirror.handle_answer(question, Answer(NoAuthError(-102)))
    assert [change.path for change in changes] == ["/r/a/b", "/r/a"]
    assert not mirror.has_questions


def test_a_node_that_becomes_readable_during_its_read_is_listed_too() -> None:
    mirror = filled("/r", "/r/b")
    mirror.resync()
    root, _ = mirror.next_questions(100)
    mirror.handle_answer(root, Answer(node(1), ["a", "b"]))
    [question] = mirror.next_questions(100)
    assert question == Question("/r/a", lists=True)
    mirror.handle_event(WatchEvent(CHANGED, "/r/a", 9))
    mirror.handle_answer(question, Answer(NoAuthError(-102), NoAuthError(-102)))
    assert questions_of(mirror) == ["/r/a/*"]
