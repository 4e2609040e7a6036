"""Every test on docs/testing.md passes under pytest, and the page names what there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.scripts import run_python
from zkwire.testing.memory import four_letter_words
from zkwire.testing.memory.faults import Faults
from zkwire.testing.memory.server import Server

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"(<!-- conftest\.py -->\n)?```python\n(.*?)```", PAGE, re.DOTALL)
CONFTEST = [code for mark, code in BLOCKS if mark]
TESTS = [code for mark, code in BLOCKS if "def test_" in code]


def test_the_page_has_a_conftest_and_four_examples() -> None:
    assert (len(CONFTEST), len(TESTS)) == (1, 4)


@pytest.mark.slow("starts pytest")
def test_the_examples_pass_under_pytest(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST[0], encoding="utf-8")
    for number, example in enumerate(TESTS):
        (tmp_path / f"test_example_{number}.py").write_text(example, encoding="utf-8")
    printed = run_python("-m", "pytest", "-p", "no:cacheprovider", "-W", "error", folder=tmp_path)
    assert f"{sum(example.count('def test_') for example in TESTS)} passed" in printed


def test_the_page_names_every_fault_and_every_word() -> None:
    public = {name for cls in (Faults, Server) for name, value in vars(cls).items() if callable(value)}
    missing = {name for name in public - {"close"} if not name.startswith("_") and name not in PAGE}
    assert not missing
    assert [word.decode() for word in four_letter_words._WORDS if word.decode() not in PAGE] == []
