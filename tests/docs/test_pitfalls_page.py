"""docs/pitfalls.md and the tests agree: every number that a test cites is on the page, every guard is real."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "pitfalls.md").read_text(encoding="utf-8")
# The cell with the tests, by the number of the pitfall.
ENTRIES = {
    int(number): tests
    for number, tests in re.findall(r'^\| <a id="pitfall-(\d+)"></a>\1 \| .+ \| .+ \| (.+) \|$', PAGE, re.MULTILINE)
}
# "Pitfall 5", "pitfalls 1, 2 and 30" in texts; "pitfall_5", "pitfalls_1_2_30" in names of tests.
CITATION = re.compile(r"pitfalls?[ _]+(\d+(?:(?:,\s+|\s+and\s+|_)\d+)*)", re.IGNORECASE)


def _citations() -> dict[int, set[str]]:
    """Return the test files that cite each pitfall, as paths below tests/."""
    cited: dict[int, set[str]] = defaultdict(set)
    for path in (ROOT / "tests").rglob("*.py"):
        if path == Path(__file__).resolve():
            continue
        for numbers in CITATION.findall(path.read_text(encoding="utf-8")):
            for number in re.findall(r"\d+", numbers):
                cited[int(number)].add(path.relative_to(ROOT / "tests").as_posix())
    return cited


CITED = _citations()


def test_every_cited_pitfall_is_on_the_page() -> None:
    missing = {number: sorted(files) for number, files in CITED.items() if number not in ENTRIES}
    assert missing == {}


def test_the_numbers_are_those_that_tests_have_cited_from_the_start() -> None:
    assert list(ENTRIES) == [*range(1, 26), *range(30, 41), *range(50, 69), *range(70, 94)]


@pytest.mark.parametrize("number", ENTRIES)
def test_a_pitfall_is_cited_by_the_tests_that_its_entry_names(number: int) -> None:
    named = re.findall(r"`([\w/]+(?:\.py|/))`", ENTRIES[number])
    assert named, f"Pitfall {number} names no test"
    silent = [guard for guard in named if not any(path.startswith(guard) for path in CITED[number])]
    assert silent == [], f"Pitfall {number} is cited by {sorted(CITED[number])}"
