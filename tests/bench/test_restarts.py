"""bench/restarts.py, once with few leases."""

import json
from pathlib import Path

import pytest

from bench import restarts


@pytest.mark.java
@pytest.mark.slow("runs a benchmark once")
def test_restarts_and_kills_have_figures(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    restarts.main(["--leases", "3", "--timeout", "4", "--out", "1", "--json", str(file)])
    found = json.loads(file.read_text(encoding="utf-8"))
    assert list(found) == ["restarted", "killed"]
    for figures in found.values():
        assert figures["reconnects"] >= 3  # each server is out once
