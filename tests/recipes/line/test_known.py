"""What one client knows of a line: cached children, foreign nodes, parents, calls that are due.

`tests/model` plays the cached children together with the tickets themselves.
"""

import asyncio
from collections.abc import Callable
from functools import partial

import pytest

from recipes.line import known as module
from recipes.line.known import Alarms, CachedChildren, KnownLine, KnownParents, Subscription, known_of, line_of
from recipes.line.position import Ranking, every_contender
from tests.support.client import turns
from tests.support.everywhere import scene
from tests.support.recipes import line
from tests.support.virtual_time import in_virtual_time

NAMES = [f"_c_0d3a-lock-{number:010d}" for number in range(10)]
A, B, C, D, *_ = NAMES
LOCK = "/a/b/c"


# -- cached children --------------------------------------------------------------------------------------------------


def before(known: Ranking | None, name: str) -> list[str] | None:
    """Return which names come before `name`; None if no list is known."""
    if known is None:
        return None
    names, count = known.before(name, every_contender)
    return names[:count]


def joined(children: CachedChildren) -> Subscription:
    subscription = Subscription(children)
    assert subscription.exchange() is None
    return subscription


def test_what_one_ticket_has_listed_and_seen_to_leave_another_one_knows() -> None:
    children = CachedChildren()
    one, other = joined(children), joined(children)
    ranking = one.listed(Ranking(NAMES))
    one.departed(B)
    assert other.exchange() is None
    one.exchange()
    assert before(other.exchange(), D) == [A, C]
    other.departed(A)
    assert before(other.exchange(), D) == before(one.exchange(), D) == [C]
    other.listed(ranking)  # a list that both bring is taken in once
    assert before(other.exchange(), D) == [C]
    one.listed(Ranking(NAMES[2:]))
    one.exchange()
    assert before(other.exchange(), D) == [C]
    assert list(ranking) == NAMES


def test_a_ticket_is_given_only_what_was_shared_since_it_has_joined() -> None:
    """Anything else may come from a former connection: what was listed before, and what it has not shared itself."""
    children = CachedChildren()
    one, other = joined(children), joined(children)
    one.listed(Ranking(NAMES))
    one.exchange()
    late = Subscription(children)
    assert late.exchange() is None
    one.departed(A)
    one.exchange()
    assert late.exchange() is None
    late.departed(B)
    late.listed(Ranking(NAMES[3:]))
    late.leave()
    assert late.exchange() is None
    assert before(other.exchange(), D) == [B, C]
    one.listed(Ranking(NAMES[1:]))
    one.exchange()
    assert before(late.exchange(), D) == [B, C]


def test_a_list_that_no_ticket_can_use_is_dropped() -> None:
    children = CachedChildren()
    one, other = joined(children), joined(children)
    one.listed(Ranking(NAMES))
    one.exchange()
    one.leave()
    one.leave()
    assert (children.tickets, before(other.exchange(), D)) == (1, [A, B, C])
    other.leave()
    assert (children.tickets, children.names) == (0, None)


# -- foreign nodes and tries ------------------------------------------------------------------------------------------


def test_a_node_is_read_when_it_makes_a_try_fail_for_the_second_time_and_a_ticket_once() -> None:
    line = KnownLine("/line")
    assert line.to_read(["z"], at_once=True) == ["z"]
    assert line.to_read(["a", "b"]) == []
    assert line.blocked_by == {"a": False, "b": False}
    assert line.to_read(["a", "c"]) == ["a"]
    line.was_read("a")
    assert line.to_read(["a", "c"]) == ["c"]
    assert line.to_read(["a", "c"]) == ["c"]  # nothing was found out about it
    line.found_foreign("c")
    assert line.to_read(["b", "c"]) == ["c"]  # it may be a ticket by now, of the same name
    assert line.to_read(["b", "a"]) == ["b"]  # "a" was not ahead at the last try


def test_each_node_is_reported_once_with_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    line = KnownLine("/line")
    for _ in range(2):
        line.found_foreign("a")
        line.found_unreadable("b")
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 2
    first, second = caplog.messages
    advice = "it is left out, and can be deleted"
    assert first == f"the line /line: /line/a is not ephemeral, so it is not a ticket: {advice}"
    assert second.startswith("the line /line: /line/b is in the line and must not be read by this client: it counts as")


def test_a_bounded_number_of_foreign_nodes_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_FOREIGN", 3)
    line = KnownLine("/line")
    names = [f"{number}" for number in range(5)]
    for name in (*names, "4"):  # the last one is known, and makes no other one be forgotten
        line.found_foreign(name)
    assert line.to_read(names) == ["2", "3", "4"]


async def test_foreign_nodes_are_those_up_to_the_first_that_is_a_ticket_or_gone() -> None:
    async with scene() as stage:
        for number in range(4):
            await stage.zk.create(f"{stage.path}/x-", ephemeral=number == 3, sequential=True, make_parents=True)
        *foreign, ticket = await line(stage.zk, stage.path)
        for last in (ticket, "gone"):
            names = [*foreign, last, *foreign * 2]
            with stage.server.delay_replies(0, "exists", session=stage.zk.session_id) as asked:
                assert await line_of(stage.zk, stage.path).foreign_among(stage.zk, names) == foreign
            assert asked.hits == 6  # in writes of 2 and 4


async def test_each_client_knows_a_bounded_number_of_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_LINES", 3)
    async with scene() as stage:
        known = [line_of(stage.zk, f"/{number}") for number in range(4)]
        for number in (3, 2, 1):
            assert line_of(stage.zk, f"/{number}") is known[number]
        assert line_of(stage.zk, "/0") is not known[0]
        assert line_of(stage.other, "/3") is not known[3]
        known_of(stage.zk).parents.entered(LOCK, 0.0, is_ours=False)
        assert known_of(stage.other).parents.to_create(LOCK, 0.0) == [LOCK]


# -- parents ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("known", "missing"),
    [
        ("/other/b/c", ["/a/b/c"]),
        ("/a", ["/a/b", "/a/b/c"]),
        ("/a/b", ["/a/b/c"]),
        ("/a/b/other", ["/a/b/c"]),
        ("/a/other/c", ["/a/b", "/a/b/c"]),
    ],
)
def test_all_nodes_below_the_lowest_known_one_are_created(known: str, missing: list[str]) -> None:
    for is_ours in (True, False):
        parents = KnownParents()
        assert parents.to_create(LOCK, 0.0) == [LOCK]  # nothing is known
        parents.entered(known, 0.0, is_ours=is_ours)
        assert parents.to_create(LOCK, 1.0) == missing
        # A container may go, but what is above a ticket is taken for existing for good.
        if known.count("/") > 1:
            assert parents.to_create(LOCK, 10.0**9) == missing


def test_a_container_of_ours_is_known_for_half_a_minute_after_each_use_and_that_of_others_for_good() -> None:
    parents = KnownParents()

    def is_known_until(moment: float) -> bool:
        return (parents.to_create(LOCK, moment - 0.1), parents.to_create(LOCK, moment)) == ([], [LOCK])

    parents.entered(LOCK, 100.0, is_ours=True)
    assert is_known_until(130.0)
    parents.entered(LOCK, 120.0, is_ours=False)  # it was not missing, as expected
    assert is_known_until(150.0)
    parents.entered(LOCK, 110.0, is_ours=False)
    assert is_known_until(150.0)
    parents.entered(LOCK, 150.0, is_ours=True)  # the server has deleted it meanwhile
    assert is_known_until(180.0)
    parents.entered(LOCK, 180.0, is_ours=False)  # another client has created it
    assert parents.to_create(LOCK, 10.0**9) == []
    parents.was_missing("/a/b")
    assert parents.to_create(LOCK, 10.0**9) == []
    parents.was_missing(LOCK)
    assert parents.to_create(LOCK, 1.0) == ["/a/b", LOCK]  # "/a" exists


def test_what_is_remembered_of_parents_has_a_bound_and_is_kept_up_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_PARENTS", 8)
    parents = KnownParents()
    paths = [f"/locks/{number}" for number in range(7)]  # with their parent, eight nodes
    for path in (*paths, paths[0]):
        parents.entered(path, 0.0, is_ours=True)
    assert [path for path in paths if parents.to_create(path, 1.0)] == []
    parents.entered("/locks/7", 1.0, is_ours=True)
    assert parents.to_create("/locks/7", 1.0) == []
    assert [path for path in paths if not parents.to_create(path, 1.0)] == []


# -- calls that are due -----------------------------------------------------------------------------------------------


@in_virtual_time
async def test_calls_are_made_when_they_are_due_with_one_timer() -> None:
    loop, alarms, made = asyncio.get_running_loop(), Alarms(), list[tuple[str, float]]()
    start = loop.time()

    def call_of(name: str) -> Callable[[], None]:
        return lambda: made.append((name, round(loop.time() - start, 3)))

    calls = {name: call_of(name) for name in "abcd"}
    for name, due in {"a": 0.3, "b": 0.1, "c": 0.3, "d": 0.2}.items():
        alarms.add(calls[name], start + due)
    alarms.discard(calls["d"])
    await asyncio.sleep(0.15)
    assert made == [("b", 0.1)]
    alarms.add(calls["d"], start + 0.2)
    await asyncio.sleep(1)
    assert made == [("b", 0.1), ("d", 0.2), ("a", 0.3), ("c", 0.3)]


async def test_a_call_whose_time_has_passed_needs_no_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, alarms, made = asyncio.get_running_loop(), Alarms(), list[int]()
    monkeypatch.setattr(loop, "call_at", lambda _, call: loop.call_soon(call))  # the same as in uvloop
    monkeypatch.setattr(loop, "time", lambda: 9.0)  # the first one is due just now
    for number in range(2):
        alarms.add(partial(made.append, number), 9.0 - number)
    await turns()
    assert made == [0, 1]
