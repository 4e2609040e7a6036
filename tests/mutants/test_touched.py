"""Which tests call which functions: what is noted, and which tests are then run for a change."""

from pathlib import Path

import pytest

from tests.mutants.changes import Change, changes
from tests.mutants.mutant import ROOT
from tests.mutants.touched import Touched
from tests.mutants.trial import run_pytest

PLUGIN = ("-p", "tests.mutants.touched")
TESTS = "tests/zkwire/test_paths.py"


def _change(file: str, function: str) -> Change:
    text = (ROOT / file).read_text(encoding="utf-8")
    return next(change for change in changes(file, text) if change.scope == function)


@pytest.mark.slow("runs pytest twice")
def test_the_tests_of_a_change_are_those_that_call_its_function(tmp_path: Path) -> None:
    notes, listed = tmp_path / "calls.json", tmp_path / "tests.txt"
    status, output = run_pytest(ROOT, [TESTS], *PLUGIN, "--note-calls", str(notes))
    assert status == 0, output
    touched = Touched(notes)
    found = touched.tests_of(_change("zkwire/paths.py", "ancestors"))
    names = ["test_ancestors_go_from_just_below_the_root_down_to_the_path_itself", "test_the_root_has_no_ancestors"]
    assert found == [f"{TESTS}::{name}" for name in names]
    assert touched.tests_of(_change("zkwire/wire/timing.py", "")) is None
    assert touched.tests_of(_change("recipes/counter.py", "Counter.add")) == []

    listed.write_text("\n".join(found))
    status, output = run_pytest(ROOT, [TESTS], *PLUGIN, "--only", str(listed))
    assert status == 0
    assert "2 passed" in output
