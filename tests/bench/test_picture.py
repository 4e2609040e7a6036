"""bench/picture.py: the picture of a report is valid XML, names all contestants, and has a curve for each."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from bench import picture, tally
from bench.tally import Tally

NAMES = ["zkwire", "floor", "kazoo", "<go & zk>"]
SVG = "{http://www.w3.org/2000/svg}"


def report(*panels: dict[str, Tally]) -> dict[str, Any]:
    """A report as the hand-over benchmarks write it."""
    return {
        "zookeeper": "3.9.5",
        "server": "real",
        "python": "3.11.7",
        "cores": 2,
        "hold": 0.002,
        "rounds": 3,
        "handovers": 500,
        "results": [tally.plain(2 + 6 * number, panel, None) for number, panel in enumerate(panels)],
    }


def panel(names: list[str] = NAMES) -> dict[str, Tally]:
    return {
        name: Tally([[1000 * (300 * (number + 1) + step) for step in range(200)]]) for number, name in enumerate(names)
    }


def parsed(drawn: str) -> ET.Element:
    return ET.fromstring(drawn)


def test_each_panel_names_each_contestant_and_has_its_curve(tmp_path: Path) -> None:
    (tmp_path / "figures.json").write_text(json.dumps(report(panel(), panel())), encoding="utf-8")
    assert picture.main([str(tmp_path / "figures.json"), str(tmp_path / "picture.svg")]) == 0
    root = parsed((tmp_path / "picture.svg").read_text(encoding="utf-8"))
    texts = [text.text for text in root.iter(f"{SVG}text")]
    for name in NAMES:
        assert texts.count(name) == 2
    assert texts.count("2 processes") == texts.count("8 processes") == 1
    assert texts.index("zkwire") < texts.index("kazoo")
    curves = list(root.iter(f"{SVG}polyline"))
    assert len(curves) == 2 * len(NAMES)
    for curve in curves:
        points = [tuple(map(float, point.split(","))) for point in curve.get("points", "").split()]
        assert points == sorted(points, key=lambda point: (point[0], -point[1]))


@pytest.mark.parametrize(
    "found",
    [
        {"zkwire": Tally([[]])},
        {"zkwire": Tally([[5000]])},
        {"zkwire": Tally([[500_000] * 5]), "floor": Tally([[]])},
        panel(["zkwire", *(f"client-{number}" for number in range(12))]),  # more than there are colours
    ],
    ids=["nothing", "one", "all equal", "many"],
)
def test_any_report_can_be_drawn(found: dict[str, Tally]) -> None:
    assert "zkwire" in [text.text for text in parsed(picture.drawn(report(found))).iter(f"{SVG}text")]
