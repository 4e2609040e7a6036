"""What the nodes of a queue say about its items, without a server."""

import pytest

from recipes.queue.nodes import numbers_given
from zkwire import Stat

LAST = 2**31 - 1


@pytest.mark.parametrize("given", [0, 1, 2, 1000, 2**30, LAST - 1, LAST])
@pytest.mark.parametrize("left", [0, 1, 700])
def test_the_next_number_follows_from_how_many_items_were_ever_made(given: int, left: int) -> None:
    """Each creation and each deletion adds one to the cversion, a signed number of 32 bits."""
    left = min(left, given)
    changes = given + (given - left)
    cversion = (changes + 2**31) % 2**32 - 2**31
    assert numbers_given(Stat(1, 1, 0, 0, 0, cversion, 0, 0, 0, left, 1)) == given
