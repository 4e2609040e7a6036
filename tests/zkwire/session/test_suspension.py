"""How long the machine was suspended, by the difference of two clocks of the system."""

import time

import pytest

from zkwire.session import keepalive


def test_the_clock_that_stands_still_is_taken_from_the_one_that_runs_if_any(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = 7
    monkeypatch.setattr(keepalive, "_BOOT_CLOCK", clock)
    monkeypatch.setattr(time, "clock_gettime", {clock: 5000.0}.__getitem__)
    monkeypatch.setattr(time, "monotonic", lambda: 1400.0)
    assert keepalive.suspended() == 3600.0
    monkeypatch.setattr(keepalive, "_BOOT_CLOCK", None)
    assert keepalive.suspended() == 0
