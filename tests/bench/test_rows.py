"""bench/rows.py: a figure beside its floor."""

import json
import math

from bench.rows import Row, plain, table

BOTH = Row("reconnect", "ms", [20.0, 30.0, 90.0], [10.0, 20.0, 30.0])
ALONE = Row("a lock", "bytes", [100.0])


def test_the_ratio_is_the_median_of_the_rounds() -> None:
    assert BOTH.ratio() == 2.0
    assert math.isnan(ALONE.ratio())


def test_a_line_has_the_medians_the_ratio_and_the_unit() -> None:
    _, both, alone = table([BOTH, ALONE])
    assert both.split() == ["reconnect", "30.0", "20.0", "2.00", "ms"]
    assert alone.split() == ["a", "lock", "100.0", "bytes"]


def test_plain_data_is_json_also_without_a_floor() -> None:
    found = json.loads(json.dumps(plain([BOTH, ALONE]), allow_nan=False))
    assert found["reconnect"]["median"] == 30.0
    assert found["reconnect"]["ratio"] == 2.0
    assert found["a lock"]["ratio"] is None
    assert found["a lock"]["floor_median"] is None
