"""The judgements of a sample fit the present text of the product."""

import pytest

from tests.mutants.changes import changes
from tests.mutants.mutant import ROOT
from tests.mutants.sample import core_files, equivalents


@pytest.mark.slow("reads every module of the product")
def test_each_change_that_was_judged_to_have_no_effect_still_exists() -> None:
    there = {
        change.key for file in core_files([]) for change in changes(file, (ROOT / file).read_text(encoding="utf-8"))
    }
    assert equivalents() <= there
