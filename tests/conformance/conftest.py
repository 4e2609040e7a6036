"""The servers on which the conformance suite runs."""

import pytest

from tests.support.client import Server


@pytest.fixture(params=["zookeeper", pytest.param("memory", marks=pytest.mark.memory)])
def server(request: pytest.FixtureRequest) -> Server:
    """One of the servers; tests use its `hosts` only, and nodes below their own `path`."""
    chosen: Server = request.getfixturevalue(request.param)
    return chosen
