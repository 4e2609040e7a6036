"""bench/restarts.py, once with few leases and one server."""

import json
from pathlib import Path

import pytest

from bench import restarts
from zkwire.testing import RealEnsemble


@pytest.mark.java
@pytest.mark.slow("runs a benchmark once")
def test_restarts_and_kills_have_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restarts, "SERVERS", 1)
    monkeypatch.setattr(
        restarts, "RealEnsemble", lambda size, *, tick_time, jvm: RealEnsemble(size, tick_time=tick_time)
    )
    file = tmp_path / "figures.json"
    restarts.main(["--leases", "3", "--timeout", "4", "--out", "1", "--json", str(file)])
    found = json.loads(file.read_text(encoding="utf-8"))
    assert list(found) == ["restarted", "killed"]
    for figures in found.values():
        assert figures["reconnects"] >= 3  # of each client
