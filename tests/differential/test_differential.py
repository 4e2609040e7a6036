"""The in-memory server and a real one get the same random requests and must answer alike."""

import random
from collections.abc import Callable, Collection, Iterator
from typing import Any

import pytest

from tests.differential.play import Different
from tests.differential.sides import RealSide
from tests.differential.trial import Trial, real_side
from zkwire.testing import ZooKeeperMissingError
from zkwire.testing.memory.tree import Node, Tree
from zkwire.testing.memory.watch_manager import Watches

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


def told_twice(deleted: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(watches: Watches[Any], path: str) -> tuple[Collection[Any], Collection[Any]]:
        told, others = deleted(watches, path)
        return told, [*others, *told]

    return wrong


def undone_by_halves(uncreate: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(tree: Tree, path: str, parent: Node) -> Callable[[], None]:
        undo = uncreate(tree, path, parent)

        def halves() -> None:
            counted = parent.creates
            undo()
            parent.creates = counted

        return halves

    return wrong


@AS_IN_3_9
@pytest.mark.parametrize(
    ("kind", "name", "mistake"), [(Watches, "deleted", told_twice), (Tree, "_uncreate", undone_by_halves)]
)
def test_a_machine_with_a_mistake_is_found(
    real: RealSide, kind: type, name: str, mistake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kind, name, mistake(getattr(kind, name)))
    with pytest.raises(Different, match="the machine:"):
        Trial(real).search(SCRIPTS, 1, shrink=False)
