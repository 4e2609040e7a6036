"""The watch table: what a reply registers, what an event wakes (PROTOCOL 9.9), what is set again after a reconnect."""

import itertools
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkwire.requests import SetWatchesRequest, WatcherType
from zkwire.watches import WatchEventType, WatchKind, WatchTable, kind_set_by

DATA, EXIST, CHILD = WatchKind.DATA, WatchKind.EXIST, WatchKind.CHILD
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
some_paths = st.sampled_from(["/", "/a", "/a/b", "/ab", "/é"])
Entry = tuple[WatchKind, str]
entries = st.lists(st.tuples(kinds, some_paths), max_size=20)


def _filled(watches: list[Entry]) -> WatchTable[int]:
    """A table whose watchers are the places of their entries."""
    table: WatchTable[int] = WatchTable()
    for number, (kind, path) in enumerate(watches):
        table.add(kind, path, number)
    return table


def _rearmed(requests: list[SetWatchesRequest]) -> Counter[Entry]:
    return Counter(
        (kind, path)
        for request in requests
        for kind, paths in ((DATA, request.data), (EXIST, request.exist), (CHILD, request.child))
        for path in paths
    )


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
        *((asked, code, None) for asked in WatchKind for code in (-1, -4, -5, -6, -8, -102, -127, 1, -9999)),
    ],
)
def test_a_reply_registers_what_the_table_of_the_protocol_says(
    asked: WatchKind, code: int, kind: WatchKind | None
) -> None:
    """pitfall 19: a getData on a missing node sets nothing, an exists does."""
    assert kind_set_by(asked, code) is kind


def test_data_and_exist_watches_are_in_one_table_of_the_server() -> None:
    assert [kind.on_server for kind in (DATA, EXIST, CHILD)] == [
        WatcherType.DATA,
        WatcherType.DATA,
        WatcherType.CHILDREN,
    ]


def test_the_event_types_have_the_numbers_of_the_protocol() -> None:
    assert [int(event) for event in (CREATED, DELETED, CHANGED, CHILDREN)] == [1, 2, 3, 4]


# -- what an event wakes ------------------------------------------------------------------------------


@pytest.mark.parametrize("event", WatchEventType)
@pytest.mark.parametrize("kind", WatchKind)
def test_an_event_wakes_each_kind_as_the_table_says(event: WatchEventType, kind: WatchKind) -> None:
    """pitfall 36"""
    table = _filled([(kind, "/a")])
    woken = kind in WOKEN[event]
    assert table.dispatch(event, "/a") == ([0] if woken else [])
    assert len(table) == (0 if woken else 1)


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
    assert len(table) == 0
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
        for where, at in itertools.product((WatcherType.DATA, WatcherType.CHILDREN), ("/", "/a", "/a/b", "/ab", "/é")):
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


def _frame_size(request: SetWatchesRequest) -> int:
    return 8 + len(request.encode())


@pytest.mark.parametrize("character", ["x", "é", "中"])
def test_ten_thousand_watches_on_long_paths_go_in_chunks_below_the_limit(character: str) -> None:
    """pitfalls 30, 32"""
    watches = [(kind, f"/{character * 200}/{number:05d}") for number in range(3334) for kind in (DATA, EXIST, CHILD)]
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
        paths = [*request.data, *request.exist, *request.child]
        assert len(paths) == 1 or _frame_size(request) <= CHUNK + 100
