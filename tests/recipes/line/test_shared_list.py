"""The list that the tickets of one client share; `tests/model` plays it with the tickets themselves."""

from hypothesis import given
from hypothesis import strategies as st

from recipes.line.position import Position, Ranking, every_contender
from recipes.line.shared_list import Share, SharedList


def ticket(number: int) -> str:
    return f"_c_0d3a-lock-{number:010d}"


NAMES = [ticket(number) for number in range(6)]
A, B, C, D, E, F = NAMES


def before(known: Ranking | None, name: str) -> list[str] | None:
    """Return which names come before `name`, None if no list is known."""
    if known is None:
        return None
    names, count = known.before(name, every_contender)
    return names[:count]


def joined(shared: SharedList) -> Share:
    share = Share(shared)
    assert share.exchange() is None
    return share


# -- a ranking that changes -------------------------------------------------------------------------------------------


# -- what is shared ---------------------------------------------------------------------------------------------------


def test_a_ticket_alone_puts_nothing_in_order_and_shares_nothing() -> None:
    share = joined(SharedList())
    assert share.listed(NAMES) is NAMES
    assert share.exchange() is None


def test_what_one_ticket_has_listed_and_seen_to_leave_another_one_knows() -> None:
    shared = SharedList()
    one, other = joined(shared), joined(shared)
    assert list(one.listed(NAMES)) == NAMES
    one.departed(B)
    assert other.exchange() is None
    one.exchange()
    assert before(other.exchange(), D) == [A, C]
    other.departed(A)
    assert before(other.exchange(), D) == [C]
    assert before(one.exchange(), D) == [C]


def test_a_ticket_is_not_given_a_list_from_before_it_has_joined() -> None:
    """It may come from a former connection."""
    shared = SharedList()
    one, _ = joined(shared), joined(shared)
    one.listed(NAMES)
    one.exchange()
    late = Share(shared)
    assert late.exchange() is None
    one.departed(A)
    one.exchange()
    assert late.exchange() is None
    one.listed(NAMES[1:])
    one.exchange()
    assert before(late.exchange(), D) == [B, C]


def test_what_a_ticket_has_not_shared_when_it_leaves_is_forgotten() -> None:
    """It may come from a former connection."""
    shared = SharedList()
    one, other = joined(shared), joined(shared)
    other.listed(NAMES)
    other.exchange()
    one.listed(NAMES[3:])
    one.departed(A)
    one.leave()
    one.exchange()
    assert before(other.exchange(), D) == [A, B, C]


def test_a_ticket_that_has_left_is_given_what_is_listed_after_it_has_joined_again() -> None:
    shared = SharedList()
    one, other = joined(shared), joined(shared)
    other.listed(NAMES)
    other.exchange()
    assert before(one.exchange(), D) == [A, B, C]
    one.leave()
    assert one.exchange() is None
    other.listed(NAMES[1:])
    other.exchange()
    assert before(one.exchange(), D) == [B, C]


def test_a_list_that_many_tickets_bring_is_taken_in_once() -> None:
    shared = SharedList()
    one, other = joined(shared), joined(shared)
    ranking = Ranking(NAMES)
    assert one.listed(ranking) is ranking
    one.departed(A)
    one.exchange()
    other.listed(ranking)
    assert before(other.exchange(), D) == [B, C]
    assert list(ranking) == NAMES


def test_what_nobody_can_use_is_dropped() -> None:
    shared = SharedList()
    one, other = joined(shared), joined(shared)
    one.listed(NAMES)
    one.exchange()
    one.leave()
    one.leave()
    assert (shared.tickets, before(other.exchange(), D)) == (1, [A, B, C])
    other.leave()
    assert (shared.tickets, shared.newer(-1)) == (0, None)


# -- what a ticket makes of it ----------------------------------------------------------------------------------------


@given(st.data())
def test_no_blocker_that_is_there_is_ever_lost(data: st.DataObject) -> None:
    """Departures reach one ticket or the other, lists are late: what a ticket knows contains what is there."""
    slots, mine = data.draw(st.integers(1, 3)), data.draw(st.integers(0, 9))
    names = [ticket(number) for number in range(10)]
    shared = SharedList()
    friend, share = joined(shared), joined(shared)
    position = Position(names[mine], slots=slots)
    position.listed(names)
    there = names
    for _ in range(data.draw(st.integers(0, 20))):
        gone = data.draw(st.sampled_from(names))
        if gone != names[mine] and gone in there:
            there = [name for name in there if name != gone]
        match data.draw(st.sampled_from(["friend lists", "friend hears", "hears", "nothing"])):
            case "friend lists":
                friend.listed(there)
            case "friend hears" if gone not in there:
                friend.departed(gone)
            case "hears" if gone not in there:
                share.departed(gone)
                position.departed(gone)
        friend.exchange()
        known = share.exchange()
        if known is not None:
            position.caught_up(known)
        assert set(position.before) >= {name for name in there if names.index(name) < mine}
        assert position.before == [name for name in names[:mine] if name in position.before]
