"""bench/turns.py: hand-overs, owners at one time, and tokens out of order."""

from bench.turns import Turn, hand_overs, misordered, overlaps


def turn(acquire_called: int, acquired: int, release_called: int, token: int) -> Turn:
    return Turn(acquire_called, acquired, release_called, release_called + 1, token)


def test_a_hand_over_lasts_from_the_release_to_the_next_acquire() -> None:
    turns = [turn(0, 1, 100, 1), turn(50, 130, 200, 2), turn(60, 215, 300, 3)]
    assert hand_overs(turns, 0, 10) == [30, 15]
    assert hand_overs(turns, 2, 1) == [15]


def test_the_order_is_that_of_the_tokens_and_not_of_the_records() -> None:
    turns = [turn(60, 215, 300, 3), turn(0, 1, 100, 1), turn(50, 130, 200, 2)]
    assert hand_overs(turns, 0, 10) == [30, 15]


def test_an_owner_that_was_not_yet_waiting_is_left_out() -> None:
    assert hand_overs([turn(0, 1, 100, 1), turn(101, 130, 200, 2)], 0, 10) == []


def test_each_pair_of_owners_at_one_time_is_counted() -> None:
    apart = [turn(0, 10, 20, 1), turn(0, 20, 30, 2)]
    together = [turn(0, 10, 40, 1), turn(0, 20, 50, 2), turn(0, 30, 60, 3)]
    assert overlaps(apart) == 0
    assert overlaps(together) == 3


def test_a_token_that_does_not_grow_is_counted() -> None:
    assert misordered([turn(0, 1, 2, 1), turn(0, 3, 4, 2)]) == 0
    assert misordered([turn(0, 1, 2, 2), turn(0, 3, 4, 2), turn(0, 5, 6, 1)]) == 2
