"""The servers that the conformance suite runs against."""

import pytest

from tests.support.client import Server


@pytest.fixture(params=["zookeeper", pytest.param("memory", marks=pytest.mark.memory)])
def server(request: pytest.FixtureRequest) -> Server:
    """One of the servers; tests keep to its `hosts`, and below their own `path`."""
    chosen: Server = request.getfixturevalue(request.param)
    return chosen
