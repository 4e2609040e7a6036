"""The deliberate faults fit the present text of the product.  `python -m tests.mutants` tries them."""

import pytest

from tests.mutants.mutant import ROOT, Mutant, areas, mutants

MUTANTS = [mutant for area in areas() for mutant in mutants(area)]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.area}: {mutant.name}")
def test_a_fault_can_be_put_into_its_file(mutant: Mutant) -> None:
    assert mutant.occurrences() == 1
    assert mutant.new != mutant.old
    for test in mutant.tests:
        assert (ROOT / test.partition("::")[0]).exists()
    assert mutant.tests
