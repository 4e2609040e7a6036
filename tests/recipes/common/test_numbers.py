"""The order of children by the numbers that the server has given them."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from recipes.common.numbers import in_order, next_number
from zkwire import Stat

LAST = 2**31 - 1
NUMBERS = st.integers(-(2**31), LAST)


@pytest.mark.parametrize("given", [0, 1, 2, 1000, 2**30, LAST - 1, LAST])
@pytest.mark.parametrize("left", [0, 1, 700])
def test_the_next_number_follows_from_how_many_items_were_ever_made(given: int, left: int) -> None:
    """Each creation and each deletion adds one to the cversion, a signed number of 32 bits."""
    left = min(left, given)
    changes = given + (given - left)
    cversion = (changes + 2**31) % 2**32 - 2**31
    assert next_number(Stat(1, 1, 0, 0, 0, cversion, 0, 0, 0, left, 1)) == given


@given(NUMBERS, st.lists(st.integers(1, LAST), unique=True), st.lists(NUMBERS))
@example(5, [1, 2, 3], [4 - 2**31])
def test_the_numbers_of_other_clients_do_not_change_the_order_pitfall_88(
    base: int, ages: list[int], foreign: list[int]
) -> None:
    """Pitfall 5: nor does the overflow, also where only the number modulo 2**31 of the next child is known."""
    names = [f"a-{(base - age + 2**31) % 2**32 - 2**31:010d}" for age in sorted(ages, reverse=True)]
    children = [*(f"x-{number:010d}" for number in foreign), *names[::-1], "config"]
    for each in (base, base % 2**31):
        assert [name for name in in_order(children, each) if name in names] == names
