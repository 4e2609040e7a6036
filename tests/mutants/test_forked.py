"""A change put into functions that exist: which code they have then, and what the tests say to it."""

import importlib.util
from pathlib import Path
from types import FunctionType, ModuleType

import pytest

from tests.mutants.changes import changes
from tests.mutants.forked import exchange, functions_by_file
from tests.mutants.mutant import ROOT
from tests.mutants.slot import slots
from tests.mutants.touched import Guard

TEXT = """\
def outer(a):
    def inner(b):
        return a < b
    return inner

class Thing:
    @property
    def size(self):
        return 1

    @size.setter
    def size(self, value):
        self.seen = value + 2

kept = outer(1)
"""


def _imported(folder: Path) -> tuple[ModuleType, list[FunctionType]]:
    file = folder / "module.py"
    file.write_text(TEXT, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("module", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module, functions_by_file()[str(file)]


@pytest.mark.slow("looks at every function there is")
def test_functions_that_exist_get_the_changed_code(tmp_path: Path) -> None:
    module, functions = _imported(tmp_path)
    assert exchange(functions, TEXT, TEXT.replace("a < b", "a <= b").replace("value + 2", "value + 3"))
    assert module.kept(1)
    assert module.outer(5)(5)
    thing = module.Thing()
    thing.size = 4
    assert (thing.size, thing.seen) == (1, 7)


@pytest.mark.slow("looks at every function there is")
def test_what_has_no_effect_or_another_shape_is_not_exchanged(tmp_path: Path) -> None:
    module, functions = _imported(tmp_path)
    assert not exchange(functions, TEXT, TEXT)
    assert not exchange(functions, TEXT, TEXT.replace("outer(1)", "outer(0)"))  # is executed at the import only
    assert not exchange(functions, TEXT, TEXT.replace("a < b", "b"))  # `inner` no longer holds a variable of `outer`
    assert module.kept(2)


@pytest.mark.slow("runs pytest")
def test_a_slot_names_the_test_that_catches_a_change_and_forgets_the_change() -> None:
    text = (ROOT / "zkwire/wire/frames.py").read_text(encoding="utf-8")
    change = next(each for each in changes("zkwire/wire/frames.py", text) if each.after == "0 <= length < self.limit")
    assert change.scope == "FrameReader.feed"
    tests = "tests/zkwire/wire/test_frames.py"  # not tests of hypothesis, which takes 2 s in a new process
    whole = "test_a_frame_with_one_byte_less_or_more_is_cut_out_as_any_other"
    names = (f"{whole}[0]", f"{whole}[40]")
    blind, seeing = (Guard(f"{tests}::{name}", 0.1, needs_java=False) for name in names)
    with slots(1, tests) as (slot,):
        # A change that is tried at once is not in the code that the process has imported.
        assert slot.caught_by(change, [seeing], is_at_import=True) == seeing.name
        assert slot._in_fork(change.file, text, text, [seeing]) is None
        for guards, caught_by in [([blind, seeing], seeing.name), ([blind], None), ([], None), ([seeing], seeing.name)]:
            assert slot.caught_by(change, guards, is_at_import=False) == caught_by  # exchanged
        for guards, caught_by in [([blind, seeing], seeing.name), ([blind], None)]:
            assert slot.caught_by(change, guards, is_at_import=True) == caught_by  # imported again
