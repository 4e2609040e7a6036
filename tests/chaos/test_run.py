"""A short run on a real ensemble, and runs with recipes that are broken on purpose, which must be caught."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.chaos import workload
from tests.chaos.arena import in_memory
from tests.chaos.check import Violation
from tests.chaos.report import report
from tests.chaos.run import Outcome, Plan, play


def shown(outcome: Outcome) -> str:
    return "\n".join(report(outcome))


@pytest.mark.limit(400)
async def test_all_recipes_keep_their_promises_on_an_ensemble_that_is_disturbed(tmp_path: Path) -> None:
    """The seed is one by which the leader and clients are killed, and links of both are stalled."""
    outcome = await play(Plan("make test 357", 12.0, tmp_path, clients=4))
    assert outcome.violations == [], shown(outcome)
    locks = {name for name, what in workload.PROGRESS.items() if what == "acquired"}
    assert locks <= {record.name for record in outcome.records if record.what == "acquired"}
    assert any(record.what == "killed" for record in outcome.records)
    assert any(record.what == "FAULT" and record.name.startswith("server") for record in outcome.records)


@pytest.mark.slow("starts processes")
@pytest.mark.limit(200)
@pytest.mark.parametrize(
    "caught",
    [
        {"second-in-line-owns": (workload.LOCK, "two owners for certain")},
        {
            "readers-pass-writers": (workload.READ_WRITE, "two owners for certain"),
            "one-permit-too-many": (workload.SEMAPHORE, "holders of 3 permits"),
        },
    ],
    ids=", ".join,
)
async def test_broken_recipes_are_caught(tmp_path: Path, caught: dict[str, tuple[str, str]]) -> None:
    """Faults of different recipes are put in together: each has a violation of its own."""

    def all_caught(found: Sequence[Violation]) -> bool:
        return all(any(each.name == name and text in each.text for each in found) for name, text in caught.values())

    plan = Plan("broken", 60.0, tmp_path, clients=5, broken=tuple(caught), enough=all_caught)
    outcome = await play(plan, in_memory())
    assert all_caught(outcome.violations), shown(outcome)
    first = outcome.violations[0]  # the report shows a few only, and another recipe's may have come first
    assert f"{first.name}: {first.text}; the steps before:" in shown(outcome)
