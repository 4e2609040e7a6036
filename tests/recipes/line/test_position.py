"""The decisions of one ticket in the line; `tests/model` plays them against a model of ZooKeeper."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import zkwire
from recipes.line.position import Position, Ranking, every_contender


def ticket(number: int, kind: str = "lock-") -> str:
    """Return the name that a server gives to a ticket; its counter is a signed integer of 32 bits."""
    signed = (number + 2**31) % 2**32 - 2**31
    return f"_c_0d3a-{kind}{signed:010d}"


def earlier(name: str, names: Iterable[str]) -> list[str]:
    """Return the contenders among `names` that come before `name`, in the order of the line."""
    contenders, count = Ranking(names).before(name, every_contender)
    return contenders[:count]


def writers(name: str) -> bool:
    return "__WRIT__" in name


# -- the order of the names -------------------------------------------------------------------------------------------


def test_any_child_that_ends_in_a_sequence_number_counts() -> None:
    names = [
        "_c_9f-lock-0000000003",
        "0000000001",
        "lock-0000000000",
        "7f5f__lock__0000000002",  # kazoo's
        "x-0000000004",
    ]
    assert earlier("_c_11-lock-0000000004", names) == [
        "lock-0000000000",
        "0000000001",
        "7f5f__lock__0000000002",
        "_c_9f-lock-0000000003",
    ]


def test_names_without_a_sequence_number_are_left_out() -> None:
    names = [
        "config",
        "",
        "lock-",
        "lock-12",
        "lock-000000000x",
        "lock-0000000001.tmp",
        "lock-" + "\u0660" * 10,
        "9999999999",
    ]
    assert earlier("lock-0000000009", names) == []


def test_the_prefix_does_not_count() -> None:
    assert earlier("a-0000000002", ["z-0000000001", "a-0000000003", "b-0000000004"]) == ["z-0000000001"]


def test_a_name_without_a_sequence_number_is_refused() -> None:
    with pytest.raises(ValueError, match="'config' has no sequence number"):
        earlier("config", [])


@given(st.integers(0, 2**32 - 1), st.lists(st.integers(-(2**31) + 1, 2**31 - 1), unique=True, max_size=8))
def test_order_is_kept_across_the_overflow(start: int, offsets: list[int]) -> None:
    """Pitfall 5: numbers are compared as numbers, signed, and across 2**31."""
    names = [ticket(start + offset) for offset in offsets if offset]
    assert earlier(ticket(start), reversed(names)) == [ticket(start + o) for o in sorted(offsets) if o < 0]


@example(2**31 - 1, [(0, True), (1, True)], list(range(12)))  # the number continues below zero
@given(
    st.integers(0, 2**32 - 1),
    st.lists(st.tuples(st.integers(1 - 2**30, 2**30), st.booleans()), unique_by=lambda each: each[0], max_size=12),
    st.permutations(range(12)),
)
def test_a_list_that_is_ranked_once_shows_every_ticket_what_comes_before_it(
    start: int, tickets: list[tuple[int, bool]], order: list[int]
) -> None:
    # The dash: without one at the end of the prefix, the lowest negative numbers are not read as such.
    names = [ticket(start + offset, "__WRIT__-" if writes else "__READ__-") for offset, writes in sorted(tickets)]
    shuffled = [names[place] for place in order if place < len(names)] + ["no ticket"]
    ranking = Ranking(shuffled)
    assert list(ranking) == shuffled
    for name in names:
        for blocks in (every_contender, writers):
            position = Position(name, blocks=blocks)
            position.listed(ranking)
            expected = [each for each in names if blocks(each) and names.index(each) < names.index(name)]
            assert (position.before, position.first, position.to_watch) == (expected, expected[:1], expected[-2:])
            assert (position.owns, position.is_gone) == (not expected, False)


def test_a_departure_from_a_ranking_is_seen_by_one_ticket_only() -> None:
    names = [ticket(number) for number in range(4)]
    ranking = Ranking(names)
    one, other = Position(names[2]), Position(names[3])
    one.listed(ranking)
    other.listed(ranking)
    one.departed(names[0])
    assert one.before == names[1:2]
    assert other.before == names[:3]
    one.listed(Ranking(names))
    assert one.before == names[1:2]


def test_across_the_overflow_the_line_still_moves() -> None:
    """Pitfall 5."""
    last, first, second = ticket(2**31 - 1), ticket(2**31), ticket(2**31 + 1)
    assert [zkwire.sequence(name) for name in (last, first, second)] == [2**31 - 1, -(2**31), -(2**31) + 1]
    position = Position(second)
    position.listed(Ranking([second, first, last]))
    assert not position.owns
    assert position.to_watch == [last, first]
    position.departed(last)
    position.departed(first)
    assert position.owns


# -- one position -----------------------------------------------------------------------------------------------------

A, B, C, D, E = map(ticket, range(5))


def test_the_last_two_are_watched_and_one_is_enough_to_be_armed() -> None:
    position = Position(D)
    position.listed(Ranking([A, B, C, D, E]))
    assert position.to_watch == [B, C]
    position.watched(B)
    position.watched(C)
    assert not position.is_armed  # A and B may go before C does
    position.departed(B)
    assert position.needs_list  # it looks ahead: A may have left, too
    position.listed(Ranking([C, D, E]))
    assert position.is_armed
    assert not position.needs_list
    position.departed(C)
    assert position.owns


def test_a_ticket_is_not_armed_without_a_watch_on_its_last_blocker() -> None:
    position = Position(B)
    position.listed(Ranking([A, B]))
    assert not position.is_armed
    position.watched(A)
    assert position.is_armed
    position.unwatched(A)  # its data was changed
    assert not position.is_armed
    assert position.to_watch == [A]


def test_a_list_older_than_a_departure_brings_no_blocker_back() -> None:
    position = Position(C)
    position.listed(Ranking([A, B, C]))
    position.departed(B)
    position.listed(Ranking([A, B, C]))
    position.departed(A)
    assert position.owns


def test_after_a_reconnect_a_ticket_owns_only_by_a_new_list() -> None:
    position = Position(B)
    position.listed(Ranking([A, B]))
    position.watched(A)
    position.watched(B)
    position.started_over()
    position.departed(A)  # after a reconnect the order of the events says nothing
    assert not position.owns
    assert not position.is_armed
    assert not position.is_watched
    assert position.needs_list
    position.listed(Ranking([B]))
    assert position.owns


def test_a_departure_after_a_change_of_the_number_counts_under_the_new_one() -> None:
    """Pitfall 21."""
    position = Position(C, slots=None)
    position.listed(Ranking([A, B, C]))
    position.slots_read(2)
    position.watched(A)
    position.watched(B)
    position.watched(C)
    assert position.is_armed
    assert not position.needs_requests
    position.slots_changed()
    position.departed(A)
    assert not position.owns
    assert not position.is_armed
    assert position.needs_requests
    position.slots_read(1)
    assert not position.owns
    position.slots_read(2)
    assert position.owns


# -- blockers that must not be read -----------------------------------------------------------------------------------


def test_a_blocker_that_must_not_be_read_is_waited_for_by_lists() -> None:
    position = Position("lock-0000000009")
    position.listed(Ranking(["lock-0000000001", "lock-0000000009"]))
    position.watched("lock-0000000009")
    assert not position.watches_children
    position.unreadable("lock-0000000001")
    assert position.watches_children
    assert position.needs_list  # the former list has left no watch
    assert position.to_watch == []
    assert not position.is_armed
    position.listed(Ranking(["lock-0000000001", "lock-0000000009"]), is_watched=True)
    assert not position.needs_requests
    position.children_changed()
    assert position.needs_list
    position.listed(Ranking(["lock-0000000009"]), is_watched=True)
    assert position.owns
    position.children_changed()
    assert not position.needs_requests


@pytest.mark.parametrize("foreign", ["x90143--2147483639", "x-2147483647", "x--2147483648", "x--0000000001"])
def test_no_other_nodes_number_decides_the_order_of_a_shared_list_pitfall_88(foreign: str) -> None:
    tickets = [f"u-lock-{number:010d}" for number in range(20)]
    names = [foreign, *tickets]
    ranking = Ranking(names)
    for ticket in tickets:
        blockers, count = ranking.before(ticket, every_contender)
        assert [each for each in blockers[:count] if each != foreign] == tickets[: tickets.index(ticket)]
