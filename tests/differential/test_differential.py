"""The in-memory server and a real one get the same random requests and must answer alike."""

import random
from collections.abc import Iterator
from typing import Any

import pytest

from tests.captures.sides import RealSide
from tests.differential.play import Different
from tests.differential.trial import Trial, real_side
from zkwire.testing import ZooKeeperMissingError
from zkwire.testing.memory.tree import Tree
from zkwire.testing.memory.watch_manager import SEE_CHILDREN, SEE_DATA, Watches

OPERATIONS = 20_000
SCRIPTS = 100

AS_IN_3_9 = pytest.mark.since("3.9", "what the in-memory server answers", raises=ZooKeeperMissingError)


@pytest.fixture(scope="module")
def real() -> Iterator[RealSide]:
    with real_side() as side:
        yield side


@AS_IN_3_9
def test_twenty_thousand_random_operations_are_answered_alike(real: RealSide) -> None:
    trial = Trial(real)
    while trial.operations < OPERATIONS:
        trial.search(SCRIPTS, random.randrange(1 << 32))


def two_events(watches: Watches[Any], path: str) -> list[Any]:
    return [*watches.trigger(path, SEE_DATA), *watches.trigger(path, SEE_CHILDREN)]


def kept(tree: Tree) -> None:
    tree.commit()


@AS_IN_3_9
@pytest.mark.parametrize(("kind", "name", "mistake"), [(Watches, "deleted", two_events), (Tree, "rollback", kept)])
def test_a_machine_with_a_mistake_is_found(
    real: RealSide, kind: type, name: str, mistake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kind, name, mistake)
    with pytest.raises(Different, match="the machine:"):
        Trial(real).search(SCRIPTS, 1, shrink=False)
