"""bench/peers/lines.py: orders and turns as lines."""

import pytest

from bench.peers import lines
from bench.turns import Order, Turn, hand_overs

ORDER = Order("go-zk", "127.0.0.1", 2181, "/bench/0-go-zk", 25, 0.002)


def test_an_order_is_one_line_and_is_read_back() -> None:
    line = lines.order_line(ORDER)
    assert line == "127.0.0.1:2181 /bench/0-go-zk 25 0.002"
    assert lines.parsed_order(line + "\n", "go-zk") == ORDER


def test_a_turn_is_four_times_and_is_ordered_by_the_second() -> None:
    assert lines.turn_line(Turn(1, 2, 3, 4, 99)) == "1 2 3 4"
    assert lines.parsed_turn("1 2 3 4") == Turn(1, 2, 3, 4, token=2)
    later_first = [lines.parsed_turn("5 130 200 201"), lines.parsed_turn("0 1 100 101")]
    assert hand_overs(later_first, 0, 10) == [30]


@pytest.mark.parametrize("line", ["", "1 2 3", "1 2 3 4 5", "1 2 3 x", "done"])
def test_another_line_is_no_turn(line: str) -> None:
    with pytest.raises(ValueError, match=r"values to unpack|invalid literal"):
        lines.parsed_turn(line)
