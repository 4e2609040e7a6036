"""Every Python block of docs/testing.md runs as printed, as a test of pytest or as a script."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"(<!-- conftest\.py -->\n)?```python\n(.*?)```", PAGE, re.DOTALL)
CONFTEST = [code for mark, code in BLOCKS if mark]
TESTS = [code for mark, code in BLOCKS if "def test_" in code]
SCRIPTS = [code for mark, code in BLOCKS if not mark and "def test_" not in code]


def run(folder: Path, *command: str) -> str:
    ran = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_the_page_has_a_conftest_a_script_and_four_examples() -> None:
    assert (len(CONFTEST), len(SCRIPTS), len(TESTS)) == (1, 1, 4)


def test_the_examples_pass_under_pytest(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST[0], encoding="utf-8")
    for number, example in enumerate(TESTS):
        (tmp_path / f"test_example_{number}.py").write_text(example, encoding="utf-8")
    printed = run(tmp_path, "-m", "pytest", "-p", "no:cacheprovider", "-W", "error")
    assert f"{sum(example.count('def test_') for example in TESTS)} passed" in printed


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_runs(tmp_path: Path, script: str) -> None:
    (tmp_path / "example.py").write_text(script, encoding="utf-8")
    assert run(tmp_path, "-W", "error", "example.py") == "/greeting\n"


def test_the_page_names_every_fault_and_every_word() -> None:
    from zkwire.testing.memory import four_letter_words
    from zkwire.testing.memory.faults import Faults
    from zkwire.testing.memory.server import Server

    public = {name for cls in (Faults, Server) for name, value in vars(cls).items() if callable(value)}
    internal = {"link_opened", "link_began", "link_received", "link_lost", "flush", "close"}
    missing = {name for name in public - internal if not name.startswith("_") and name not in PAGE}
    assert not missing
    assert [word.decode() for word in four_letter_words._WORDS if word.decode() not in PAGE] == []
