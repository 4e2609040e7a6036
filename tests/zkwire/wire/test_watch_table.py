"""The watch table: what a reply registers, what an event wakes (PROTOCOL 9.9), what is set again after a reconnect."""

import itertools
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from zkwire.wire.requests import PingRequest, RemoveWatchesRequest, SetWatches2Request, SetWatchesRequest, WatcherType
from zkwire.wire.watch_table import WatchEventType, WatchKind, WatchTable, kind_set_by

DATA, EXIST, CHILD = WatchKind.DATA, WatchKind.EXIST, WatchKind.CHILD
PERSISTENT, RECURSIVE = WatchKind.PERSISTENT, WatchKind.RECURSIVE
LASTING = (PERSISTENT, RECURSIVE)
CREATED, DELETED = WatchEventType.CREATED, WatchEventType.DELETED
CHANGED, CHILDREN = WatchEventType.CHANGED, WatchEventType.CHILDREN

SERVER_LIMIT = 1_048_575
CHUNK = 128 * 1024

# PROTOCOL 9.9: who is removed and called.
WOKEN = {
    CREATED: {DATA, EXIST},
    CHANGED: {DATA, EXIST},
    DELETED: {DATA, EXIST, CHILD},
    CHILDREN: {CHILD},
}

kinds = st.sampled_from(WatchKind)
SOME_PATHS = ["/", "/a", "/a/b", "/ab", "/é", "/a/b/c"]
some_paths = st.sampled_from(SOME_PATHS)
Entry = tuple[WatchKind, str]
Rearming = list[SetWatchesRequest | SetWatches2Request]
entries = st.lists(st.tuples(kinds, some_paths), max_size=20)


def _filled(watches: list[Entry]) -> WatchTable[int]:
    """A table whose watchers are the places of their entries."""
    table: WatchTable[int] = WatchTable()
    for number, (kind, path) in enumerate(watches):
        table.add(kind, path, number)
    return table


def _lists(request: SetWatchesRequest | SetWatches2Request) -> list[tuple[WatchKind, list[str]]]:
    lists = [(DATA, request.data), (EXIST, request.exist), (CHILD, request.child)]
    if isinstance(request, SetWatches2Request):
        lists += [(PERSISTENT, request.persistent), (RECURSIVE, request.persistent_recursive)]
    return lists


def _rearmed(requests: Rearming) -> Counter[Entry]:
    return Counter((kind, path) for request in requests for kind, paths in _lists(request) for path in paths)


def _concerns(kind: WatchKind, at: str, event: WatchEventType, path: str) -> bool:
    """PROTOCOL 9.3 and 9.9, once more: whether an event for `path` is for a watch on `at`."""
    if kind is RECURSIVE:
        return event is not CHILDREN and (at in ("/", path) or path.startswith(f"{at}/"))
    return at == path and (kind is PERSISTENT or kind in WOKEN[event])


# -- what a reply registers ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "code", "kind"),
    [
        (DATA, 0, DATA),
        (DATA, -101, None),
        (EXIST, 0, DATA),
        (EXIST, -101, EXIST),
        (CHILD, 0, CHILD),
        (CHILD, -101, None),
        (PERSISTENT, 0, PERSISTENT),
        (RECURSIVE, 0, RECURSIVE),
        (PERSISTENT, -101, None),
        (RECURSIVE, -101, None),
        *((asked, code, None) for asked in WatchKind for code in (-1, -4, -5, -6, -8, -102, -127, 1, -9999)),
    ],
)
def test_a_reply_registers_what_the_table_of_the_protocol_says(
    asked: WatchKind, code: int, kind: WatchKind | None
) -> None:
    """pitfall 19: a getData on a missing node sets nothing, an exists does."""
    assert kind_set_by(asked, code) is kind


def test_data_and_exist_watches_are_in_one_table_of_the_server() -> None:
    numbers = {DATA: 2, EXIST: 2, CHILD: 1, PERSISTENT: 4, RECURSIVE: 5}
    assert {kind: int(kind.on_server) for kind in WatchKind} == numbers


def test_the_event_types_have_the_numbers_of_the_protocol() -> None:
    assert [int(event) for event in (CREATED, DELETED, CHANGED, CHILDREN)] == [1, 2, 3, 4]


# -- what an event wakes ------------------------------------------------------------------------------


@pytest.mark.parametrize("event", WatchEventType)
@pytest.mark.parametrize("kind", WatchKind)
def test_an_event_wakes_each_kind_as_the_table_says(event: WatchEventType, kind: WatchKind) -> None:
    """pitfall 36"""
    table = _filled([(kind, "/a")])
    woken = kind in WOKEN[event]
    stays = kind is PERSISTENT or (kind is RECURSIVE and event is not CHILDREN)
    assert table.dispatch(event, "/a") == ([0] if woken else [])
    assert table.concerned(event, "/a") == ([0] if stays else [])
    assert len(table) == (0 if woken else 1)
    assert table.lasting == (kind in LASTING)


@given(entries, st.sampled_from(WatchEventType), some_paths)
def test_an_event_wakes_all_that_it_concerns_once_and_nobody_else(
    watches: list[Entry], event: WatchEventType, path: str
) -> None:
    """pitfall 40: kinds and paths do not disturb one another."""
    table = _filled(watches)
    concerned = {number for number, (kind, at) in enumerate(watches) if at == path and kind in WOKEN[event]}
    woken = table.dispatch(event, path)
    assert sorted(woken) == sorted(concerned)
    assert sorted(table.all()) == sorted(set(range(len(watches))) - concerned)
    assert len(table) == len(watches) - len(concerned)
    assert table.dispatch(event, path) == []


@given(entries, st.sampled_from(WatchEventType), some_paths)
def test_an_event_is_for_the_lasting_watches_that_cover_its_path_and_they_stay(
    watches: list[Entry], event: WatchEventType, path: str
) -> None:
    """pitfall 40: and a recursive one never gets CHILDREN, which a plain watch below it may bring."""
    table = _filled(watches)
    concerned = [n for n, (kind, at) in enumerate(watches) if kind in LASTING and _concerns(kind, at, event, path)]
    for _ in range(2):
        assert sorted(table.concerned(event, path)) == concerned
    assert len(table) == len(watches)


@pytest.mark.parametrize(
    ("path", "covered"), [("/", True), ("/a", True), ("/a/b", True), ("/ab", False), ("/b", False), ("/a/b/c/d", True)]
)
def test_a_recursive_watch_covers_names_and_not_prefixes(path: str, covered: bool) -> None:
    at = "/" if path == "/" else "/a"
    assert _filled([(RECURSIVE, at)]).concerned(CREATED, path) == [0] * covered


@given(entries)
def test_watchers_of_one_kind_and_path_are_woken_in_the_order_in_which_they_came(watches: list[Entry]) -> None:
    table = _filled(watches)
    for path in {path for _, path in watches}:
        assert table.dispatch(CHILDREN, path) == [n for n, entry in enumerate(watches) if entry == (CHILD, path)]


def test_an_event_for_a_path_that_nobody_watches_wakes_nobody() -> None:
    table = _filled([(DATA, "/a"), (CHILD, "/a")])
    for event in WatchEventType:
        assert table.dispatch(event, "/a/b") == []
        assert table.dispatch(event, "/") == []
        assert table.concerned(event, "/a") == []
    assert len(table) == 2


# -- giving up and ending -----------------------------------------------------------------------------


@given(entries)
def test_a_discarded_watcher_is_gone_and_its_table_named(watches: list[Entry]) -> None:
    table = _filled(watches)
    for number, (kind, path) in enumerate(watches):
        assert table.is_wanted(kind.on_server, path)
        assert table.discard(path, number) is kind.on_server
        assert table.discard(path, number) is None
        others = watches[number + 1 :]
        assert table.is_wanted(kind.on_server, path) is any(
            other.on_server is kind.on_server and at == path for other, at in others
        )
        assert len(table) == len(others)
        assert table.lasting == sum(other in LASTING for other, _ in others)
    assert table.rearm(0) == []


def test_a_watcher_is_discarded_by_its_own_path_only() -> None:
    table = _filled([(DATA, "/a")])
    assert table.discard("/b", 0) is None
    assert table.discard("/a", 1) is None
    assert len(table) == 1


@given(entries)
def test_clear_gives_every_watcher_once_and_leaves_nothing(watches: list[Entry]) -> None:
    """pitfall 35"""
    table = _filled(watches)
    table.asked(DATA, "/asked")
    assert sorted(table.clear()) == list(range(len(watches)))
    assert len(table) == table.lasting == 0
    assert list(table.all()) == []
    assert table.rearm(0) == []
    assert not any(table.is_wanted(where, path) for where in WatcherType for path in ("/a", "/asked"))
    assert table.clear() == []


# -- requests under way -------------------------------------------------------------------------------


def test_a_watch_is_wanted_while_a_request_for_it_is_under_way() -> None:
    table: WatchTable[str] = WatchTable()
    assert not table.is_wanted(WatcherType.DATA, "/a")
    table.asked(EXIST, "/a")
    assert table.is_wanted(WatcherType.DATA, "/a")
    assert not table.is_wanted(WatcherType.CHILDREN, "/a")
    assert not table.is_wanted(WatcherType.DATA, "/b")
    table.answered(EXIST, "/a")
    assert not table.is_wanted(WatcherType.DATA, "/a")


@given(st.lists(st.tuples(kinds, some_paths, st.booleans()), max_size=30))
def test_each_request_under_way_is_counted(steps: list[tuple[WatchKind, str, bool]]) -> None:
    table: WatchTable[str] = WatchTable()
    under_way: Counter[tuple[WatcherType, str]] = Counter()
    for kind, path, asks in steps:
        key = (kind.on_server, path)
        if asks:
            table.asked(kind, path)
            under_way[key] += 1
        elif under_way[key]:
            table.answered(kind, path)
            under_way[key] -= 1
        for where, at in itertools.product(WatcherType, SOME_PATHS):
            assert table.is_wanted(where, at) is (under_way[where, at] > 0)


def test_an_answer_that_comes_after_the_end_of_the_session_leaves_no_trace() -> None:
    """pitfall 35"""
    table: WatchTable[str] = WatchTable()
    table.asked(DATA, "/a")
    table.clear()
    table.answered(DATA, "/a")
    assert not table.is_wanted(WatcherType.DATA, "/a")
    table.asked(DATA, "/a")
    assert table.is_wanted(WatcherType.DATA, "/a")
    table.answered(DATA, "/a")
    assert not table.is_wanted(WatcherType.DATA, "/a")


def test_a_request_under_way_is_not_a_watch_yet() -> None:
    table: WatchTable[str] = WatchTable()
    table.asked(DATA, "/a")
    assert len(table) == 0
    assert table.rearm(7) == []


# -- what the server is to remove ---------------------------------------------------------------------

ANY = WatcherType.ANY


@pytest.mark.parametrize(
    ("gone", "others", "removed"),
    [
        *((gone, [], ANY) for gone in WatchKind),
        (DATA, [DATA], None),
        (EXIST, [DATA], None),
        (DATA, [EXIST], None),
        (CHILD, [CHILD], None),
        (PERSISTENT, [PERSISTENT], None),
        (RECURSIVE, [RECURSIVE, DATA], None),
        (DATA, [CHILD], WatcherType.DATA),
        (CHILD, [EXIST], WatcherType.CHILDREN),
        # beside a lasting one, servers before 3.9 would take that away too
        (DATA, [PERSISTENT], None),
        (CHILD, [PERSISTENT], None),
        (EXIST, [RECURSIVE], None),
        (CHILD, [DATA, RECURSIVE], None),
        (PERSISTENT, [RECURSIVE], WatcherType.PERSISTENT),
        (RECURSIVE, [PERSISTENT, CHILD], WatcherType.PERSISTENT_RECURSIVE),
        (PERSISTENT, [DATA], WatcherType.PERSISTENT),
    ],
)
@pytest.mark.parametrize("under_way", [False, True])
def test_what_is_removed_harms_nobody_else_pitfall_40(
    gone: WatchKind, others: list[WatchKind], removed: WatcherType | None, under_way: bool
) -> None:
    table = _filled([(gone, "/a"), *((kind, "/b") for kind in WatchKind)])
    for number, kind in enumerate(others):
        if under_way:
            table.asked(kind, "/a")
        else:
            table.add(kind, "/a", 100 + number)
    where = table.discard("/a", 0)
    assert where is gone.on_server
    assert table.to_remove(where, "/a") is removed


def test_a_server_without_removal_is_not_asked_again_in_that_session() -> None:
    """A server of 3.4 drops the connection for it."""
    table: WatchTable[int] = WatchTable()
    removal = RemoveWatchesRequest("/a", ANY)
    for request, code in [(removal, 0), (removal, -121), (removal, -5), (PingRequest(), -6)]:
        assert table.heard(request, code) == []
        assert table.to_remove(WatcherType.DATA, "/a") is ANY
    assert table.heard(removal, -6) == []
    assert table.to_remove(WatcherType.DATA, "/a") is None
    table.clear()
    assert table.to_remove(WatcherType.DATA, "/a") is ANY


# -- after a reconnect --------------------------------------------------------------------------------


@given(entries, st.integers(0, 2**63 - 1))
def test_every_watch_is_set_again_once_in_the_list_of_its_kind(watches: list[Entry], zxid: int) -> None:
    """pitfalls 1, 2, 30: no kind is left out; pitfall 33: all carry the zxid that the replies have shown."""
    table = _filled(watches)
    requests = table.rearm(zxid)
    assert _rearmed(requests) == Counter(set(watches))
    assert {request.relative_zxid for request in requests} <= {zxid}
    assert len(table) == len(watches)  # they wait on
    assert table.rearm(zxid) == requests


def test_without_watches_nothing_is_sent() -> None:
    assert WatchTable[int]().rearm(7) == []


def test_what_has_fired_is_not_set_again() -> None:
    table = _filled([(DATA, "/a"), (CHILD, "/a"), (EXIST, "/b")])
    table.dispatch(CHILDREN, "/a")
    table.dispatch(CREATED, "/b")
    assert _rearmed(table.rearm(0)) == Counter([(DATA, "/a")])


@given(entries)
def test_only_lasting_watches_need_the_newer_request_pitfall_31(watches: list[Entry]) -> None:
    """Servers before 3.6 do not know SetWatches2."""
    requests = _filled(watches).rearm(1)
    assert any(isinstance(request, SetWatches2Request) for request in requests) == any(
        kind in LASTING for kind, _ in watches
    )


def test_chunks_without_lasting_watches_keep_to_the_older_request() -> None:
    watches = [(kind, f"/{'x' * 1000}{number:03d}") for kind in (DATA, RECURSIVE, PERSISTENT) for number in range(300)]
    requests = _filled(watches).rearm(1)
    assert _rearmed(requests) == Counter(watches)
    kinds = [isinstance(request, SetWatches2Request) for request in requests]
    assert len(kinds) == 7
    assert kinds == sorted(kinds)  # no chunk behind the first with lasting ones, none in front
    assert kinds.count(False) == 2


@given(entries)
def test_lasting_watchers_stand_again_with_the_answer_and_one_shot_ones_before(watches: list[Entry]) -> None:
    """Each is told once; a one-shot watch may fire in front of the answer."""
    table = _filled(watches)
    requests = table.rearm(1)
    for event, path in itertools.product(WatchEventType, SOME_PATHS):
        assert table.concerned(event, path) == []  # made up for one-shot watches, and out of order
    assert sorted(table.one_shot()) == [n for n, (kind, _) in enumerate(watches) if kind not in LASTING]
    stand = [watcher for request in requests for watcher in table.heard(request, 0)]
    assert sorted(stand) == [n for n, (kind, _) in enumerate(watches) if kind in LASTING]
    for event, path in itertools.product(WatchEventType, SOME_PATHS):
        concerned = [n for n, (kind, at) in enumerate(watches) if kind in LASTING and _concerns(kind, at, event, path)]
        assert sorted(table.concerned(event, path)) == concerned
    assert [table.heard(request, -6) for request in requests] == [[] for _ in requests]
    table.clear()
    assert [table.heard(request, 0) for request in requests] == [[] for _ in requests]


def _frame_size(request: SetWatchesRequest | SetWatches2Request) -> int:
    return 8 + len(request.encode())


@pytest.mark.parametrize("character", ["x", "é", "中"])
def test_ten_thousand_watches_on_long_paths_go_in_chunks_below_the_limit(character: str) -> None:
    """pitfalls 30, 32"""
    watches = [(kind, f"/{character * 200}/{number:05d}") for number in range(2001) for kind in WatchKind]
    assert len(watches) > 10_000
    requests = _filled(watches).rearm(9)
    assert _rearmed(requests) == Counter(watches)
    assert max(map(_frame_size, requests)) <= CHUNK + 100
    paths_size = sum(4 + len(path.encode()) for _, path in watches)
    assert len(requests) <= 2 * paths_size / CHUNK + 1


def test_300_kb_of_paths_go_in_three_chunks() -> None:
    """PROTOCOL 14.4 case 14; pitfall 32"""
    watches = [(DATA, f"/{'x' * 1000}{number:04d}") for number in range(300)]
    requests = _filled(watches).rearm(1)
    assert len(requests) == 3
    assert _rearmed(requests) == Counter(watches)


def test_a_hundred_thousand_short_paths_stay_below_the_limit_too() -> None:
    """pitfall 32: the lengths in front of the paths count as well."""
    watches = [(CHILD, f"/{number:x}") for number in range(100_000)]
    requests = _filled(watches).rearm(1)
    assert sum(_rearmed(requests).values()) == len(watches)
    assert max(map(_frame_size, requests)) <= CHUNK + 100


def test_a_path_nearly_as_long_as_the_limit_goes_alone() -> None:
    """pitfall 32: behind a chunk that is nearly full it would make a frame that the server refuses, again and again."""
    huge = "/" + "y" * 1_000_000
    watches = [(DATA, "/" + "x" * (CHUNK - 10)), (DATA, huge), (DATA, "/a"), (EXIST, huge), (CHILD, huge)]
    requests = _filled(watches).rearm(1)
    assert _rearmed(requests) == Counter(watches)
    assert max(map(_frame_size, requests)) < SERVER_LIMIT


@given(st.lists(st.tuples(kinds, st.integers(1, 300_000)), min_size=1, max_size=12))
def test_chunks_of_any_paths_are_bounded_and_lose_nothing(sizes: list[tuple[WatchKind, int]]) -> None:
    """pitfall 32"""
    watches = [(kind, f"/{number}{'x' * size}") for number, (kind, size) in enumerate(sizes)]
    requests = _filled(watches).rearm(1)
    assert _rearmed(requests) == Counter(watches)
    for request in requests:
        count = sum(len(paths) for _, paths in _lists(request))
        assert count == 1 or _frame_size(request) <= CHUNK + 100


# -- all together, against a model --------------------------------------------------------------------


class Table(RuleBasedStateMachine):
    """The table does what a plain list of (kind, path, watcher) would, whatever comes in which order."""

    def __init__(self) -> None:
        super().__init__()
        self.table: WatchTable[int] = WatchTable()
        self.model: list[tuple[WatchKind, str, int]] = []
        self.under_way: Counter[tuple[WatcherType, str]] = Counter()
        self.numbers = itertools.count()

    @rule(kind=kinds, path=some_paths)
    def ask(self, kind: WatchKind, path: str) -> None:
        self.table.asked(kind, path)
        self.under_way[kind.on_server, path] += 1

    @rule(kind=kinds, path=some_paths, code=st.sampled_from([0, -101, -102, -1]))
    def answer(self, kind: WatchKind, path: str, code: int) -> None:
        if not self.under_way[kind.on_server, path]:
            return
        self.under_way[kind.on_server, path] -= 1
        self.table.answered(kind, path)
        found = kind_set_by(kind, code)
        if found is not None:
            number = next(self.numbers)
            self.table.add(found, path, number)
            self.model.append((found, path, number))

    @rule(event=st.sampled_from(WatchEventType), path=some_paths)
    def tell(self, event: WatchEventType, path: str) -> None:
        concerned = [each for each in self.model if _concerns(each[0], each[1], event, path)]
        once = [each for each in concerned if each[0] not in LASTING]
        assert sorted(self.table.dispatch(event, path)) == [number for _, _, number in once]
        lasting = self.table.concerned(event, path) if self.table.lasting else []
        assert sorted(lasting) == [number for kind, _, number in concerned if kind in LASTING]
        self.model = [each for each in self.model if each not in once]

    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        if not self.model:
            return
        entry = data.draw(st.sampled_from(self.model))
        self.model.remove(entry)
        where = self.table.discard(entry[1], entry[2])
        assert where is entry[0].on_server
        removed = self.table.to_remove(where, entry[1])
        wanted = {kind.on_server for kind, path, _ in self.model if path == entry[1]}
        wanted |= {kind for (kind, path), count in self.under_way.items() if path == entry[1] and count}
        if removed is ANY:
            assert not wanted
        else:
            assert removed not in wanted
            assert removed in (None, where)
            assert wanted

    @rule()
    def expire(self) -> None:
        assert sorted(self.table.clear()) == sorted(number for _, _, number in self.model)
        self.model.clear()
        self.under_way.clear()

    @invariant()
    def agrees(self) -> None:
        assert sorted(self.table.all()) == sorted(number for _, _, number in self.model)
        assert len(self.table) == len(self.model)
        assert self.table.lasting == sum(kind in LASTING for kind, _, _ in self.model)
        requests = self.table.rearm(1)
        assert _rearmed(requests) == Counter({(kind, path) for kind, path, _ in self.model})
        stand = [watcher for request in requests for watcher in self.table.heard(request, 0)]
        assert sorted(stand) == [number for kind, _, number in self.model if kind in LASTING]


TestTable = Table.TestCase
