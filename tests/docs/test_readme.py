"""The README's first example runs as printed, and its first screen says what a newcomer needs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_first_example_runs_as_printed(tmp_path: Path) -> None:
    found = re.search(r"```python\n(.*?)```", README, re.DOTALL)
    assert found is not None
    example = found.group(1)
    assert len([line for line in example.splitlines() if line.strip()]) <= 15
    script = tmp_path / "example.py"
    script.write_text(example, encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, script],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert re.fullmatch(r"mine, with the fencing token \d+\n", ran.stdout)


def test_the_first_screen_names_test_bench_and_what_is_guaranteed() -> None:
    screen = "\n".join(README.splitlines()[:50])
    for wanted in ("make test", "make bench", "When a lock is lost", "LockLostError", "fencing token"):
        assert wanted in screen
