"""bench/peers/teams.py: processes that answer by lines, and processes that do not."""

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from bench.crew import WorkerFailedError
from bench.peers import teams
from bench.peers.teams import Teams
from bench.rawline import RawSession, make_path
from bench.turns import Order, overlaps
from zkwire.testing import ServerProcess

# A program that answers as a contestant does; its times grow from race to race.
GOOD = """
import sys
races = 0
for line in sys.stdin:
    server, lock, turns, hold = line.split()
    print("ready", flush=True)
    assert sys.stdin.readline() == "go\\n"
    races += 1
    for turn in range(int(turns)):
        print(races, races + turn, 8, 9)
    print("done", flush=True)
"""
MUTE = "import sys; sys.stdin.readline(); print('no', flush=True); sys.stdin.read()"
GONE = "import sys; sys.stdin.readline()"
SHORT = (
    "import sys; sys.stdin.readline(); print('ready', flush=True); sys.stdin.readline();"
    " print('1 2 3'); print('done', flush=True)"
)
SILENT = "import sys; sys.stdin.read()"


def orders(name: str, count: int, turns: int = 1) -> list[Order]:
    return [Order(name, "127.0.0.1", 1, "/lock", turns, 0.0)] * count


def program(text: str) -> Sequence[str | Path]:
    return [sys.executable, "-c", text]


def test_a_race_returns_the_turns_of_all_processes_which_serve_the_next_race_too() -> None:
    with Teams({"good": program(GOOD)}) as crew:
        assert [turn.acquired for turn in crew.race(orders("good", 2, turns=2))] == [1, 2, 1, 2]
        # One process more: the first two have run a race already.
        assert [turn.acquired for turn in crew.race(orders("good", 3))] == [2, 2, 1]


@pytest.mark.parametrize(
    ("text", "said"), [(MUTE, "got 'no'"), (GONE, "has ended"), (SHORT, "no line"), (SILENT, "took too long")]
)
def test_a_process_that_fails_is_reported_and_the_others_go_on(
    text: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(teams, "START_TIME_LIMIT", 0.2 if text == SILENT else 60)
    with Teams({"bad": program(text), "good": program(GOOD)}) as crew:
        with pytest.raises(WorkerFailedError, match=said):
            crew.race(orders("bad", 2))
        monkeypatch.undo()
        assert len(crew.race(orders("good", 1))) == 1


@pytest.mark.slow("starts processes")
@pytest.mark.parametrize("name", ["zkwire", "floor"])
def test_our_programs_run_a_race(name: str) -> None:
    command = [sys.executable, "-m", "bench.peers.programs.ours", name]
    with ServerProcess() as server, Teams({name: command}) as crew:
        host, _, port = server.hosts.rpartition(":")
        with RawSession(host, int(port)) as session:
            make_path(session, "/lock")
        turns = crew.race([Order(name, host, int(port), "/lock", 3, 0.0)] * 2)
    assert len(turns) == 6
    assert overlaps(turns) == 0
    assert all(turn.acquire_called <= turn.acquired <= turn.release_called <= turn.released for turn in turns)
