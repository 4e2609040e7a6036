"""Fixtures for the tests of recipes."""

import pytest

from tests.support.client import Server


@pytest.fixture
def idle_receipts_go_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Delete idle write receipts sooner, for plays that wait for this very often."""
    monkeypatch.setattr("recipes.common.receipts._KEPT_FOR", 0.005)


@pytest.fixture(params=["zookeeper", pytest.param("memory", marks=pytest.mark.memory)])
def each_server(request: pytest.FixtureRequest) -> Server:
    """A real server or one in memory; tests use its `hosts` only, and nodes below their own `path`."""
    chosen: Server = request.getfixturevalue(request.param)
    return chosen


@pytest.fixture
def unwatched(monkeypatch: pytest.MonkeyPatch) -> None:
    """No lease watches its own node, as one does after a moment: on a busy machine a test would see more requests."""
    monkeypatch.setattr("recipes.line.lease._UNWATCHED", 3600.0)
