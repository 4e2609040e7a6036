"""The members of a double barrier: their names, their order, and what a leaving one waits for."""

from hypothesis import given
from hypothesis import strategies as st

from recipes.double_barrier.rounds import count_of, in_order, is_round, to_wait_for


@given(st.sets(st.text("abcdef0123456789", min_size=1), min_size=1), st.data())
def test_a_round_ends_for_all_and_each_departure_wakes_one_member(members: set[str], data: st.DataObject) -> None:
    """Members leave or die in any order.  Each departure wakes at most one member, except that of the first."""
    present, waiting = set(members), set(members)
    while waiting:
        choices = {name: to_wait_for(name, sorted(present)) for name in waiting}
        done = {name for name, other in choices.items() if other is None}
        waiting -= done
        present -= done
        present -= {name for name in waiting if present and name != min(present)}
        if waiting:
            assert present
            gone = data.draw(st.sampled_from(sorted(present)))
            woken = [name for name in waiting if to_wait_for(name, sorted(present)) == gone]
            assert len(woken) <= 1 or gone == min(present)
            present.discard(gone)
            if gone != min(members) or data.draw(st.booleans()):
                waiting.discard(gone)


def test_members_are_ordered_by_their_numbers_across_the_overflow() -> None:
    unique = "9f2c1d3e-0a1b-4c5d-8e6f-1234567890ab"
    numbers = ["2147483646", "2147483647", "-2147483648", "-2147483647"]
    names = [f"{first}{unique[1:]}-of-2-{number}" for first, number in zip("3210", numbers, strict=True)]
    others = ["ready", "config", "lock-0000000001", f"{unique}-of-2", f"{unique}-of-0-0000000001", f"{unique}-of-2-7"]
    assert in_order([*others, *reversed(names)], names[0]) == names
    later = [f"{unique}-of-2--000000001", f"{unique}-of-2-0000000000"]
    assert in_order(later[::-1], later[0]) == later
    assert [count_of(name) for name in (names[0], "ready")] == [2, None]
    assert count_of(f"{unique}-of-2-9999999999") is None  # no number of 32 bits, so no server has given it


def test_the_count_in_a_name_has_few_digits() -> None:
    """A name may have a megabyte, and int() refuses 5,000 digits."""
    assert count_of(f"9f2c1d3e-0a1b-4c5d-8e6f-1234567890ab-of-{'9' * 5000}-0000000001") is None


def test_a_round_has_as_many_members_as_each_of_them_counts() -> None:
    names = [f"{first}f2c1d3e-0a1b-4c5d-8e6f-1234567890ab-of-2-000000000{first}" for first in "123"]
    assert is_round(names[:2])
    for other in (
        [],
        names[:1],
        names,
        [names[0]] * 2,
        [names[0], "ready"],
        [names[0], names[1].replace("-2-", "-3-")],
    ):
        assert not is_round(other)
