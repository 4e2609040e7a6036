"""The README's first example runs as printed, and its first screen says what a newcomer needs."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.scripts import run_script

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_first_example_runs_as_printed(tmp_path: Path) -> None:
    found = re.search(r"```python\n(.*?)```", README, re.DOTALL)
    assert found is not None
    example = found.group(1)
    assert len([line for line in example.splitlines() if line.strip()]) <= 15
    ran = run_script(example, tmp_path)
    assert re.fullmatch(r"mine, with the fencing token \d+\n", ran.stdout)


def test_the_first_screen_names_test_bench_and_what_is_guaranteed() -> None:
    screen = "\n".join(README.splitlines()[:50])
    for wanted in ("make test", "make bench", "When a lock is lost", "LockLostError", "fencing token"):
        assert wanted in screen
