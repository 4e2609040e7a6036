"""bench/peers/queues.py: its table, and its measurement with the programs of our own queue."""

import sys

import pytest

from bench.peers import queues
from bench.peers.queues import OURS, Shape
from bench.peers.teams import Teams
from zkwire.session.hosts import parse
from zkwire.testing import ServerProcess


def test_the_table_compares_within_a_round() -> None:
    rates = {OURS: [100.0, 300.0, 200.0], "kazoo Queue": [50.0, 100.0, 400.0]}
    heading, line = queues.table({Shape("get", 4, 10_000): rates})
    assert heading.split() == ["zkwire", "zkwire,", "claim", "kazoo", "Queue", "kazoo", "LockingQueue"]
    assert line.split("  ")[0] == "get, 4 processes, 10,000 deep"
    assert line.split()[5:] == ["200", "100", "(2.00", "x)"]


@pytest.mark.slow("starts processes")
def test_what_our_queue_does_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues, "ITEMS", 100)
    program = [sys.executable, "-m", "bench.peers.programs.queue_ours"]
    verbs = {"put": 0, "get": queues.ITEMS, "claim": queues.ITEMS}
    commands = {f"{OURS}: {each}": [*program, each] for each in ("fill", *verbs)}
    with ServerProcess() as server, Teams(commands) as teams:
        for verb, depth in verbs.items():
            address = parse(server.hosts)[0][0]
            assert queues.rate(teams, OURS, address, f"/{verb}", Shape(verb, 2, depth)) > 0
