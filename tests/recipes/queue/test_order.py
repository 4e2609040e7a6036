"""The names of a queue's items, their order, and which item a consumer tries next."""

import copy
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

import zkwire
from recipes.queue.order import Listing, in_order, name_before, prefix


def name(priority: int, number: int) -> str:
    return f"{prefix(priority)}{number:010d}"


def test_names_of_other_programs_have_the_default_priority_and_names_without_a_number_are_left_out() -> None:
    names = ["work-0000000007", "entry-101-0000000001", "lost+found", "entry-1x0-0000000002", "entry-099-0000000009"]
    assert in_order(names, 0) == [names[4], names[3], names[0], names[1]]
    assert in_order(["README"], 0) == []
    assert in_order(["entry-100-abcdefghij", "entry-100-0000000001"], 0) == ["entry-100-0000000001"]
    assert in_order(["entry-100-0000000001e", "ntry-100-0000000002"], 0) == ["ntry-100-0000000002"]
    assert in_order([], 0) == []


@pytest.mark.parametrize(
    "names",
    [
        ["entry-050-0000000001", "aaaaa-aaa-0000000009"],
        ["zzzzz-zzz-0000000001", "entry-200-0000000005"],
        ["entry-1000-0000000001", "entry-100-0000000002"],
        ["entry-1001-0000000001", "entry-1000-0000000002"],
        ["entry-100--000000002", "entry-100--000000001"],
        ["entry-100-0000000001", "entry-\u00b2\u00b2\u00b2-0000000002", "entry-101-0000000000"],
    ],
)
def test_names_of_an_unusual_form_are_not_sorted_as_text(names: list[str]) -> None:
    """`\u00b2` is a digit, and no number."""
    assert in_order(names[::-1], 0) == in_order(names, 0) == names


@given(st.integers(-(2**31), 2**31 - 1), st.lists(st.integers(0, 2**30), unique=True), st.randoms())
def test_the_order_holds_across_the_overflow_of_the_numbers(start: int, steps: list[int], random: Random) -> None:
    """Pitfall 5."""
    numbers = [(start + step + 2**31) % 2**32 - 2**31 for step in sorted(steps)]
    names = [name(100, number) for number in numbers]
    shuffled = list(names)
    random.shuffle(shuffled)
    assert in_order(shuffled, start + 2**30 + 1) == names


@pytest.mark.parametrize(
    ("number", "before"),
    [
        ("entry-100-2147483647", "entry-100-2147483646"),
        ("entry-005-0000000000", "entry-005--000000001"),
        ("entry-100--000000001", "entry-100--000000002"),
        ("entry-100--1500000000", "entry-100--1500000001"),
        ("entry-100--2147483648", "entry-100-2147483647"),
    ],
)
def test_the_name_before_another_one_comes_first(number: str, before: str) -> None:
    assert name_before(number) == before
    assert in_order([number, before], (zkwire.sequence(number) or 0) + 1) == [before, number]


def filled(count: int) -> Listing:
    listing = Listing()
    listing.fill([name(100, number) for number in range(count)], (), 0)
    return listing


def test_the_window_does_not_reach_into_a_less_urgent_priority() -> None:
    listing = Listing()
    listing.fill([name(50, 7), name(50, 8), *(name(100, number) for number in range(100)), name(999, 0)], (), 0)
    for _ in range(6):
        listing.lost(is_fresh=True)
    assert {listing.pick(999_999), listing.pick(999_999)} == {name(50, 7), name(50, 8)}
    assert {listing.pick(roll) for roll in range(0, 10_000, 100)} == {name(100, number) for number in range(100)}
    assert listing.pick(5) == name(999, 0)
    assert listing.pick(5) is None


def test_what_a_listing_knows() -> None:
    listing = Listing()

    def answers() -> tuple[int, str | None, bool]:
        return len(listing), next(iter(listing.next(1)), None), listing.is_stale

    names = [name(100, number) for number in range(150)]
    assert answers() == (0, None, True)
    listing.fill(reversed(names), {names[0], "another"}, 0)
    assert answers() == (149, names[1], False)
    for number, is_stale in ((1, False), (2, True)):  # it serves for two takes
        assert listing.pick(7) == names[number]
        listing.won()
        assert answers() == (149 - number, names[number + 1], is_stale)
    listing.fill(names, (), 0)
    listing.expire()
    assert answers() == (150, names[0], True)
    listing.fill(names, (), 0)
    for number in range(2):  # two losses, then a new list: they are forgotten
        assert listing.pick(0) == names[number]
        listing.lost(is_fresh=False)
    listing.won()  # likewise
    for number in range(3):
        assert not listing.is_stale
        assert listing.pick(0) == names[number + 2]
        listing.lost(is_fresh=False)
    assert answers() == (145, names[5], True)
    listing.fill(names[:1], (), 0)
    assert answers() == (1, names[0], False)
    assert listing.pick(0) == names[0]
    assert answers() == (0, None, True)
    assert listing.pick(0) is None


@pytest.mark.parametrize(("count", "takes"), [(0, 1), (63, 1), (64, 1), (127, 1), (128, 2), (192, 3)])
def test_a_listing_serves_for_one_take_per_64_items(count: int, takes: int) -> None:
    assert filled(count).takes_of_one_look == takes


@pytest.mark.parametrize(("count", "window"), [(17, 2), (49, 3), (1000, 62), (4000, 249)])
def test_a_consumer_that_competes_chooses_among_a_sixteenth_of_a_long_listing(count: int, window: int) -> None:
    listing = filled(count)
    listing.pick(0)
    listing.lost(is_fresh=True)
    chosen = [copy.deepcopy(listing).pick(roll) for roll in (0, window - 1, window)]
    assert chosen == [name(100, 1), name(100, window), name(100, 1)]


def test_each_win_makes_the_window_smaller_and_a_loss_doubles_the_one_with_which_competition_began() -> None:
    listing = filled(20)

    def window() -> int:
        """Return how many items may be chosen; 1 without competition."""
        return len({copy.deepcopy(listing).pick(roll) for roll in range(20)})

    for events, sizes in (
        ("L", [2]),
        ("W", [1]),
        ("L", [4]),  # twice the former one, although the window was smaller by then
        ("WWW", [3, 2, 1]),
        ("L", [8]),
        ("WWWWWWWW", [7, 6, 5, 4, 3, 2, 1, 1]),
        ("W", [1]),  # a win without competition halves what is remembered
        ("L", [8]),
        ("l", [16]),
        ("W" * 16, [*range(15, 0, -1), 1]),
        ("WWWWW", [1] * 5),
        ("l", [1]),  # an item that was taken after it was listed
        ("L", [2]),
    ):
        for event, size in zip(events, sizes, strict=True):
            if event == "W":
                listing.won()
            else:
                listing.lost(is_fresh=event == "L")
            assert window() == size
