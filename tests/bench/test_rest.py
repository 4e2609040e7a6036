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


def test_the_ratio_leaves_out_what_the_servers_take_without_any_client() -> None:
    processor = {"idle": 10.0, "waiters": 10.0, "holders": 40.0, "kazoo": 20.0, "no client": 10.0}
    lines = rest.table({name: rest.Phase(10, processor=figure) for name, figure in processor.items()}, 10)
    assert "holders / kazoo: 3.00 less what" in lines[-1]
    assert "2.00 with it" in lines[-1]
    assert next(line for line in lines if line.startswith("holders")).split()[-2:] == ["3.00", "ms"]
