"""Which tests execute which lines: what is noted, and which tests are then run for a change."""

from pathlib import Path

import pytest

from tests.mutants.changes import Change, changes
from tests.mutants.mutant import ROOT
from tests.mutants.touched import Touched, statement_at
from tests.mutants.trial import run_pytest

PLUGIN = ("-p", "tests.mutants.touched")
TESTS = [
    f"tests/zkwire/test_paths.py::{name}"
    for name in (
        "test_a_path_beside_the_chroot_stays_as_it_is",
        "test_stripping_the_chroot_undoes_adding_it",
        "test_split_undoes_join",
    )
]
TEXT = """\
def f():
    if (
        a < 1
    ):
        b(
            2,
        )
    c()
"""


def _change(file: str, function: str) -> tuple[Change, str]:
    text = (ROOT / file).read_text(encoding="utf-8")
    return next(change for change in changes(file, text) if change.scope == function), text


@pytest.mark.parametrize(
    ("line", "statement"), [(3, range(2, 5)), (6, range(5, 8)), (8, range(8, 9)), (9, range(9, 10))]
)
def test_a_statement_has_all_its_lines_but_not_those_of_its_body(line: int, statement: range) -> None:
    assert statement_at(TEXT, line) == statement


@pytest.mark.slow("runs pytest twice")
def test_the_tests_of_a_change_are_those_that_execute_its_statement(tmp_path: Path) -> None:
    notes, listed = tmp_path / "lines", tmp_path / "tests.txt"
    status, output = run_pytest(ROOT, TESTS, *PLUGIN, "--note-lines", str(notes))
    assert status == 0, output
    touched = Touched(notes)
    found = [test.name for test in touched.tests_of(*_change("zkwire/paths.py", "strip_chroot"))]
    assert sorted(found) == TESTS[:2]
    assert not touched.is_at_import(*_change("zkwire/paths.py", "strip_chroot"))
    assert touched.is_at_import(*_change("zkwire/wire/timing.py", ""))
    assert touched.tests_of(*_change("recipes/counter.py", "Counter.add")) == []

    listed.write_text("\n".join(found))
    status, output = run_pytest(ROOT, TESTS, *PLUGIN, "--only", str(listed))
    assert status == 0
    assert "2 passed" in output
