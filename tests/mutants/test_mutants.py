"""The deliberate faults fit the present text of the product.  `python -m tests.mutants` tries them."""

import subprocess
import sys

import pytest

from tests.mutants.mutant import ROOT, Mutant, areas, mutants

MUTANTS = [mutant for area in areas() for mutant in mutants(area)]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.area}: {mutant.name}")
def test_a_fault_can_be_put_into_its_file(mutant: Mutant) -> None:
    assert mutant.occurrences() == 1
    assert mutant.new != mutant.old
    assert mutant.tests


@pytest.mark.slow
def test_the_tests_that_must_fail_exist(request: pytest.FixtureRequest) -> None:
    """Where the whole suite runs, this run has collected them; otherwise another pytest collects the rest.

    Without --keep-duplicates pytest ignores a wrong name of a test beside the name of its file.
    """
    named = {test for mutant in MUTANTS for test in mutant.tests}
    for item in request.session.items:
        function = item.nodeid.partition("[")[0]
        named -= {item.nodeid, function, function.partition("::")[0]}
    if named:
        options = ["-p", "no:cacheprovider", "--keep-duplicates", "--collect-only", "-q"]
        command = [sys.executable, "-m", "pytest", *options, *sorted(named)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr
