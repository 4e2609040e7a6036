"""The decisions of one ticket in the line; `tests/model` plays them against a model of ZooKeeper."""

from __future__ import annotations

from collections.abc import Iterable
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipes.line.position import Position, Ranking, WeighedPosition, every_contender, permits_of


def ticket(number: int, kind: str = "lock-") -> str:
    """Return the name that a server gives to a ticket; its counter is a signed integer of 32 bits."""
    signed = (number + 2**31) % 2**32 - 2**31
    return f"_c_0d3a-{kind}{signed:010d}"


def earlier(name: str, names: Iterable[str]) -> list[str]:
    """Return the contenders among `names` that come before `name`, in the order of the line."""
    contenders, count = Ranking(names).before(name, every_contender)
    return contenders[:count]


# -- several permits at once -------------------------------------------------------------------------------------------


def test_the_permits_of_a_ticket_are_in_its_name() -> None:
    for kind, permits in (("permits-3-lease-", 3), ("permits-2147483647-lease-", 2**31 - 1), ("lease-", 1)):
        assert permits_of(ticket(7, kind)) == permits
    for kind in ("permits-0-lease-", "permits--2-lease-", "permits-02-lease-", "permits-99999999999-lease-"):
        assert permits_of(ticket(7, kind)) == 1


def test_each_blocker_counts_with_its_permits() -> None:
    two, one, other, own = (ticket(number, kind) for number, kind in enumerate(("permits-2-lease-", *["lease-"] * 3)))
    for gone, owns_by in ((two, 2), (one, 3)):
        position = WeighedPosition(own, slots=None)
        position.listed(Ranking([two, one, own]))
        for slots, owns in ((4, True), (3, False)):
            position.slots_read(slots)
            assert [position.owns, position.is_free, position.is_armed] == [owns, owns, False]
        position.watched(one)
        assert not position.is_armed
        position.watched(two)
        assert position.is_armed
        position.slots_read(1)
        assert not position.is_armed  # neither departure is enough
        position.slots_read(2)
        assert position.is_armed  # that of the first is
        position.departed(gone)
        assert position.owns == (owns_by == 2)
    position.slots_read(3)
    assert [position.owns, position.is_armed] == [True, False]
    position.slots_changed()
    assert not position.owns
    position = WeighedPosition(own, slots=None)
    position.listed(Ranking([two, other.replace("lease-", "permits-2-lease-"), own]))
    for name in position.before:
        position.watched(name)
    position.slots_read(2)
    assert not position.is_armed  # each leaves the two of the other one
    position.listed(Ranking([one, other, own]))
    position.watched(one)
    position.watched(other)
    assert position.is_armed
    position.slots_changed()
    assert not position.is_armed
    position.slots_read(2)
    position.departed(own)
    position.departed(one)
    assert not position.owns


def test_the_permits_of_a_list_are_counted_once_for_all_tickets(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass over the line at each look blocks the event loop: for half a minute with 8,000 holders in one client."""
    counted = Mock(return_value=1)
    monkeypatch.setattr("recipes.line.position.permits_of", counted)
    names = [ticket(number, "lease-") for number in range(50)]
    ranking = Ranking(names)
    for number, position in enumerate([WeighedPosition(name, slots=50) for name in names]):
        position.listed(ranking)
        assert [(position.owns, position.is_free, position.is_armed) for _ in range(3)] == [(True, True, False)] * 3
        position.departed(names[number - 1])
        assert position.owns
    assert counted.call_count == 50


# -- the order of the names -------------------------------------------------------------------------------------------


@given(st.integers(0, 2**32 - 1), st.lists(st.integers(-(2**31) + 1, 2**31 - 1), unique=True, max_size=8))
def test_order_is_kept_across_the_overflow(start: int, offsets: list[int]) -> None:
    """Pitfall 5: numbers are compared as numbers, signed, and across 2**31."""
    names = [ticket(start + offset) for offset in offsets if offset]
    assert earlier(ticket(start), reversed(names)) == [ticket(start + o) for o in sorted(offsets) if o < 0]


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


# -- foreign nodes -----------------------------------------------------------------------------------


@pytest.mark.parametrize("foreign", ["x90143--2147483639", "x-2147483647", "x--2147483648", "x--0000000001"])
def test_no_other_nodes_number_decides_the_order_of_a_shared_list_pitfall_88(foreign: str) -> None:
    tickets = [f"u-lock-{number:010d}" for number in range(20)]
    names = [foreign, *tickets]
    ranking = Ranking(names)
    for ticket in tickets:
        blockers, count = ranking.before(ticket, every_contender)
        assert [each for each in blockers[:count] if each != foreign] == tickets[: tickets.index(ticket)]
