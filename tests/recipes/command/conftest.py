"""The tests of zklock send signals, to processes and to themselves."""

import pytest


@pytest.fixture(autouse=True)
def _heed_signals(heeds_signals: None) -> None:
    """No test here may depend on how the test run was started."""
