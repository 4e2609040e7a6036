"""bench/rest.py, once with small sizes on two real servers."""

import json
from pathlib import Path

import pytest

from bench import rest


@pytest.mark.java
@pytest.mark.slow("runs a benchmark once")
def test_clients_at_rest_have_figures(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rest, "SERVERS", 2)
    file = tmp_path / "figures.json"
    arguments = ["--clients", "4", "--timeout", "2", "--seconds", "1", "--without-kazoo", "--json", str(file)]
    assert rest.main(arguments) == 0
    found = json.loads(file.read_text(encoding="utf-8"))
    assert list(found) == ["idle", "waiters", "holders", "no client"]
    idle, waiters, holders, alone = found.values()
    assert alone["requests"] is None
    assert alone["committed"] == 0
    for phase in (idle, waiters, holders):
        assert phase["requests"] == pytest.approx(sum(phase["kinds"].values()))
    assert idle["kinds"]["sync"] > 1
    assert idle["committed"] == idle["committed_on_followers"] == 0
    assert 0 <= holders["least"] < 1  # 0 on a busy machine
    assert "holders" in capfd.readouterr().out
