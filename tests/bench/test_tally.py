"""bench/tally.py: the results of races as text and as plain data."""

import json

from bench import tally
from bench.tally import Tally
from bench.turns import Turn


def tally_of(*rounds: list[int]) -> Tally:
    return Tally([[microseconds * 1000 for microseconds in sample] for sample in rounds])


def test_a_race_is_added_with_its_hand_overs_and_its_violations() -> None:
    one = Tally()
    # The third owner begins before the second one releases, and its token is smaller.
    one.add([Turn(0, 1, 100, 101, 1), Turn(0, 140, 200, 201, 3), Turn(0, 190, 300, 301, 2)], 0, 10)
    assert one.overlaps == 1
    assert one.misordered == 1
    assert len(one.rounds) == 1


def test_the_table_of_the_peers_has_both_ratios_and_the_medians_of_the_rounds() -> None:
    found = {"zkwire": tally_of([20], [30]), "floor": tally_of([10], [20]), "kazoo": tally_of([40], [90])}
    _, ours, floor, kazoo = tally.peers_table(found)
    # 25 / 15, and the median of 2 and 1.5; there is no ratio to itself.
    assert ours.split() == ["zkwire", "2", "25", "µs", "30", "µs", "0", "1.67", "1.75"]
    assert floor.split() == ["floor", "2", "15", "µs", "20", "µs", "0", "1.00", "1.00", "1.67", "1.75"]
    # 65 / 15, the median of 4 and 4.5; 25 / 65, the median of 1/2 and 1/3.
    assert kazoo.split()[7:] == ["4.33", "4.25", "0.38", "0.42"]


def test_plain_data_is_json_also_where_nothing_was_measured() -> None:
    plain = tally.plain(8, {"zkwire": tally_of([20]), "floor": tally_of([])}, None)
    text = json.dumps(plain, allow_nan=False)
    assert json.loads(text)["contestants"]["zkwire"]["median"] == 20.0
    assert json.loads(text)["contestants"]["floor"]["median"] is None
