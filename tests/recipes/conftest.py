"""Fixtures for the tests of recipes."""

import pytest


@pytest.fixture
def idle_traces_go_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Delete idle traces sooner, for plays that wait for this very often."""
    monkeypatch.setattr("recipes.common.trace._KEPT_FOR", 0.005)
