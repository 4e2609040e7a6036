"""The README's first example runs as printed, and its first screen says what a newcomer needs."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.scripts import run_script

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CHINESE = (ROOT / "README.zh-CN.md").read_text(encoding="utf-8")


def _first_example(page: str) -> str:
    return page.partition("```python\n")[2].partition("```")[0]


def test_the_first_example_runs_as_printed(tmp_path: Path) -> None:
    example = _first_example(README)
    assert len([line for line in example.splitlines() if line.strip()]) <= 15
    assert re.fullmatch(r"mine, with the fencing token \d+\n", run_script(example, tmp_path))


def test_the_first_screen_names_test_bench_and_what_is_guaranteed() -> None:
    screen = "\n".join(README.splitlines()[:50])
    for wanted in ("make test", "make bench", "When a lock is lost", "LockLostError", "fencing token"):
        assert wanted in screen


def test_the_chinese_page_has_the_same_recipes_and_an_example_that_runs(tmp_path: Path) -> None:
    def recipes_of(page: str) -> list[str]:
        rows = re.findall(r"^\| (`[A-Z]\w+`(?:(?:, |\N{IDEOGRAPHIC COMMA})`\w+`)*) \|", page, re.MULTILINE)
        return re.findall(r"`(\w+)`", " ".join(rows))

    assert recipes_of(CHINESE) == recipes_of(README) != []
    assert re.search(r"fencing token .* \d+\n", run_script(_first_example(CHINESE), tmp_path))
