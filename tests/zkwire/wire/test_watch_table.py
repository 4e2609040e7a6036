"""The watch table: what a reply registers, which watchers an event is for, what is set again after a reconnect."""

import itertools
import tracemalloc
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkwire.wire.requests import PingRequest, RemoveWatchesRequest, SetWatches2Request, SetWatchesRequest, WatcherType
from zkwire.wire.watch_table import ON_SERVER, WatchEventType, WatchKind, WatchTable, kind_set_by

DATA, EXIST, CHILD = WatchKind.DATA, WatchKind.EXIST, WatchKind.CHILD
PERSISTENT, RECURSIVE = WatchKind.PERSISTENT, WatchKind.RECURSIVE
LASTING = (PERSISTENT, RECURSIVE)
CREATED, DELETED = WatchEventType.CREATED, WatchEventType.DELETED
CHANGED, CHILDREN = WatchEventType.CHANGED, WatchEventType.CHILDREN

ANY = WatcherType.ANY
SERVER_LIMIT = 1_048_575
CHUNK = 128 * 1024

# The kinds of one-shot watches that an event removes and wakes.
WOKEN = {CREATED: {DATA, EXIST}, CHANGED: {DATA, EXIST}, DELETED: {DATA, EXIST, CHILD}, CHILDREN: {CHILD}}

kinds = st.sampled_from(WatchKind)
SOME_PATHS = ["/", "/a", "/a/b", "/ab", "/é", "/a/b/c"]
some_paths = st.sampled_from(SOME_PATHS)
Entry = tuple[WatchKind, str]
Rearming = list[SetWatchesRequest | SetWatches2Request]
entries = st.lists(st.tuples(kinds, some_paths), max_size=20)


def _filled(watches: list[Entry]) -> WatchTable[int]:
    """A table in which the watcher of each entry is the entry's index."""
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
    """Whether an event for `path` is for a watch on `at`: the rule once more, in other words than the table's."""
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
def test_a_reply_registers_a_watch_of_its_kind_or_none(asked: WatchKind, code: int, kind: WatchKind | None) -> None:
    """Pitfall 19: on a missing node exists sets a watch, getData does not."""
    assert kind_set_by(asked, code) is kind


def test_data_and_exist_watches_are_of_one_kind_for_the_server() -> None:
    numbers = {DATA: 2, EXIST: 2, CHILD: 1, PERSISTENT: 4, RECURSIVE: 5}
    assert {kind: int(where) for kind, where in ON_SERVER.items()} == numbers


# -- what an event wakes ------------------------------------------------------------------------------


@pytest.mark.parametrize("event", WatchEventType)
@pytest.mark.parametrize("kind", WatchKind)
def test_an_event_wakes_each_kind_as_the_table_says(event: WatchEventType, kind: WatchKind) -> None:
    """Pitfall 36"""
    table = _filled([(kind, "/a")])
    woken = kind in WOKEN[event]
    stays = kind is PERSISTENT or (kind is RECURSIVE and event is not CHILDREN)
    assert table.dispatch(event, "/a") == ([0] if woken else [])
    assert table.concerned(event, "/a") == ([0] if stays else [])
    assert len(table) == (0 if woken else 1)
    assert table.lasting == (kind in LASTING)


# -- discarding and clearing -----------------------------------------------------------------------------


def test_a_watch_of_the_next_session_need_not_wait_for_what_the_former_one_had_to_set_again() -> None:
    table = _filled([(PERSISTENT, "/a"), (RECURSIVE, "/a")])
    table.rearm(1)
    table.clear()
    table.add(PERSISTENT, "/a", 7)
    table.add(RECURSIVE, "/a", 8)
    assert table.concerned(CREATED, "/a") == [7, 8]
    assert (len(table), table.lasting) == (2, 2)


def test_an_event_costs_no_more_memory_than_its_path_however_deep_it_is() -> None:
    table = _filled([(RECURSIVE, "/"), (RECURSIVE, "/a"), (RECURSIVE, "/a/b"), (RECURSIVE, "/a/bc")])
    path = "/a/bc" + "/a" * 5_000
    tracemalloc.start()
    found = table.concerned(CREATED, path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found == [0, 1, 3]
    assert peak < 3 * len(path)


# -- requests in flight --------------------------------------------------------------------------------


def test_what_a_request_in_flight_needs_is_not_removed_until_each_of_them_is_answered() -> None:
    """Pitfall 35: a reply that comes after the end of the session is not counted."""
    table: WatchTable[str] = WatchTable()
    table.asked(DATA, "/a")
    table.clear()
    assert table.to_remove(WatcherType.DATA, "/a") is ANY
    table.answered(DATA, "/a")
    for _ in range(2):
        table.asked(EXIST, "/a")
    for removed in (None, None, ANY):
        assert table.to_remove(WatcherType.DATA, "/a") is removed
        assert table.to_remove(WatcherType.DATA, "/b") is ANY
        table.answered(DATA, "/a")


# -- what the server is to remove ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gone", "others", "removed"),
    [
        *((gone, [], ANY) for gone in WatchKind),
        *((kind, [kind], None) for kind in (DATA, CHILD, PERSISTENT)),
        (EXIST, [DATA], None),
        (DATA, [EXIST], None),
        (RECURSIVE, [RECURSIVE, DATA], None),
        (DATA, [CHILD], WatcherType.DATA),
        (CHILD, [EXIST], WatcherType.CHILDREN),
        # beside a persistent watch, which a server before 3.9 would remove as well
        (DATA, [PERSISTENT], None),
        (EXIST, [RECURSIVE], None),
        (CHILD, [DATA, RECURSIVE], None),
        (PERSISTENT, [RECURSIVE], WatcherType.PERSISTENT),
        (RECURSIVE, [PERSISTENT, CHILD], WatcherType.PERSISTENT_RECURSIVE),
        (PERSISTENT, [DATA], WatcherType.PERSISTENT),
    ],
)
@pytest.mark.parametrize("in_flight", [False, True])
def test_a_removal_takes_away_no_watch_that_is_still_needed(
    gone: WatchKind, others: list[WatchKind], removed: WatcherType | None, in_flight: bool
) -> None:
    """Pitfall 40"""
    table = _filled([(gone, "/a"), *((kind, "/b") for kind in WatchKind)])
    for number, kind in enumerate(others):
        if in_flight:
            table.asked(kind, "/a")
        else:
            table.add(kind, "/a", 100 + number)
    where = table.discard("/a", 0)
    assert where is ON_SERVER[gone]
    assert table.to_remove(where, "/a") is removed
    assert table.discard("/a", 0) is None
    left = [*WatchKind, *([] if in_flight else others)]
    assert (len(table), table.lasting) == (len(left), sum(kind in LASTING for kind in left))


@pytest.mark.parametrize("others", [[DATA], [CHILD], [PERSISTENT], [DATA, RECURSIVE]])
def test_a_removal_of_everything_is_given_up_when_there_are_new_watchers(others: list[WatchKind]) -> None:
    """It was refused, and is asked for again."""
    table = _filled([(kind, "/a") for kind in others])
    assert table.to_remove(ANY, "/a") is None
    assert table.to_remove(ANY, "/b") is ANY


def test_removal_is_not_tried_again_in_a_session_once_a_server_did_not_know_it() -> None:
    """A server of 3.4 closes the connection because of it."""
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
    """Pitfalls 1, 2, 30: no kind is left out.  Pitfall 33: all requests carry the zxid of the last reply."""
    table = _filled(watches)
    requests = table.rearm(zxid)
    assert _rearmed(requests) == Counter(set(watches))
    assert {request.relative_zxid for request in requests} <= {zxid}
    assert len(table) == len(watches)  # they stay registered
    assert table.rearm(zxid) == requests


def test_chunks_without_persistent_watches_use_the_older_request() -> None:
    """Servers before 3.6 do not know the newer one.  Pitfall 31"""
    watches = [(kind, f"/{'x' * 1000}{number:03d}") for kind in (DATA, RECURSIVE, PERSISTENT) for number in range(300)]
    requests = _filled(watches).rearm(1)
    assert _rearmed(requests) == Counter(watches)
    kinds = [isinstance(request, SetWatches2Request) for request in requests]
    assert len(kinds) == 7
    assert kinds == sorted(kinds)  # the chunks with persistent watches come last
    assert kinds.count(False) == 2


@given(entries)
def test_persistent_watchers_get_events_again_once_the_server_has_confirmed_them(watches: list[Entry]) -> None:
    """Each is returned once.  A one-shot watch may fire before the reply."""
    table = _filled(watches)
    requests = table.rearm(1)
    for event, path in itertools.product(WatchEventType, SOME_PATHS):
        assert table.concerned(event, path) == []  # events made up for one-shot watches, in no order
    assert sorted(table.one_shot()) == [n for n, (kind, _) in enumerate(watches) if kind not in LASTING]
    confirmed = [watcher for request in requests for watcher in table.heard(request, 0)]
    assert sorted(confirmed) == [n for n, (kind, _) in enumerate(watches) if kind in LASTING]
    for event, path in itertools.product(WatchEventType, SOME_PATHS):
        expected = [n for n, (kind, at) in enumerate(watches) if kind in LASTING and _concerns(kind, at, event, path)]
        assert sorted(table.concerned(event, path)) == expected
    assert [table.heard(request, -6) for request in requests] == [[] for _ in requests]
    table.clear()
    assert [table.heard(request, 0) for request in requests] == [[] for _ in requests]


def test_a_persistent_watch_that_the_server_refused_to_set_again_hears_of_nothing() -> None:
    table = _filled([(PERSISTENT, "/a"), (RECURSIVE, "/a")])
    (request,) = table.rearm(1)
    for code in (-1, 1, -6):
        assert table.heard(request, code) == []
        assert table.concerned(CREATED, "/a") == []
    assert table.heard(SetWatchesRequest(1, ["/a"], [], []), 0) == []
    assert table.concerned(CREATED, "/a") == []
    assert table.heard(request, 0) == [0, 1]
    assert table.concerned(CREATED, "/a") == [0, 1]


def _frame_size(request: SetWatchesRequest | SetWatches2Request) -> int:
    return 8 + len(request.encode())


def test_a_path_nearly_as_long_as_the_limit_gets_a_request_of_its_own() -> None:
    """Pitfall 32: added to a nearly full chunk, it would make a frame that the server refuses at every reconnect."""
    huge = "/" + "y" * 1_000_000
    watches = [(DATA, "/" + "x" * (CHUNK - 10)), (DATA, huge), (DATA, "/a"), (EXIST, huge), (CHILD, huge)]
    requests = _filled(watches).rearm(1)
    assert _rearmed(requests) == Counter(watches)
    assert max(map(_frame_size, requests)) < SERVER_LIMIT


def test_a_chunk_has_128_kib_of_paths_each_with_its_length() -> None:
    """Pitfall 32"""
    watches = [(DATA, f"/{number:03d}".ljust(1020, "x")) for number in range(129)]
    assert [len(_filled(watches[:count]).rearm(1)) for count in (128, 129)] == [1, 2]


@pytest.mark.parametrize("kind", [DATA, PERSISTENT])
@pytest.mark.parametrize(("last", "chunks"), [(37, 3), (38, 4)])
def test_no_request_is_a_byte_larger_than_a_small_limit_of_the_server(kind: WatchKind, last: int, chunks: int) -> None:
    """Four paths of 37 bytes, each after its length, fill a chunk: in the first one and in the later ones."""
    limit = 36 + 4 * (4 + 37)
    table: WatchTable[int] = WatchTable(limit)
    for number in range(12):
        length = last if number == 7 else 37  # the last one in the second chunk
        table.add(kind, f"/{number:02d}".ljust(length, "x"), number)
    requests = table.rearm(1)
    assert max(map(_frame_size, requests)) <= limit
    assert len(requests) == chunks
