"""The benchmarks run from their command lines to their figures, on a server in memory and with small sizes."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from bench import handover, operations, suite
from bench.peers import __main__ as peers
from bench.peers.builds import MissingError
from zkwire.testing import ServerProcess

pytestmark = pytest.mark.slow("runs the benchmarks")

RACES = ["--workers", "2", "--handovers", "10", "--rounds", "1"]


@pytest.fixture(scope="module")
def hosts() -> Iterator[str]:
    with ServerProcess() as server:
        yield server.hosts


def figures(main: Callable[[Sequence[str]], int], folder: Path, *arguments: str) -> Any:
    """Run a benchmark and return what it has written."""
    file = folder / "figures.json"
    assert main([*arguments, "--json", str(file)]) == 0
    return json.loads(file.read_text(encoding="utf-8"))


def test_the_hand_over_of_each_contestant_is_measured_explained_and_drawn(
    hosts: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "picture.svg"
    names = ["zkwire", "asyncio", "floor", "textbook", "write-lock", "read-lock", "semaphore", "election"]
    found = figures(
        handover.main, tmp_path, "--hosts", hosts, *RACES, "--contestants", ",".join(names), "--svg", str(picture)
    )
    assert set(re.findall(r"^(\w+): \w", capsys.readouterr().out, re.MULTILINE)) == {"asyncio", "floor", "textbook"}
    (result,) = found["results"]
    assert list(result["contestants"]) == names
    assert all(one["count"] > 0 and one["overlaps"] == 0 for one in result["contestants"].values())
    assert list(result["ratios"]) == names[1:]
    assert "election" in picture.read_text(encoding="utf-8")


def test_a_client_that_is_missing_or_fails_is_left_out_and_the_others_run(
    hosts: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def missing(folder: Path) -> list[str]:
        raise MissingError("kazoo needs the command pip")

    monkeypatch.setitem(peers.PREPARE, "kazoo", missing)
    # A program that ends at once.
    monkeypatch.setitem(peers.PREPARE, "curator", lambda _: ["true"])
    found = figures(peers.main, tmp_path, "--hosts", hosts, *RACES, "--contestants", "kazoo,curator")
    (result,) = found["results"]
    assert set(result["contestants"]) == {"zkwire", "floor"}
    for part in (result, *result["begin"].values()):
        assert all(one["turns_per_second"] > 0 and one["overlaps"] == 0 for one in part["contestants"].values())
    said = capfd.readouterr()
    assert re.findall(r"^(kazoo|curator) is left out: \w+", said.err, re.MULTILINE) == ["kazoo", "curator"]
    assert said.out.count("zkwire / it") == 3


def test_every_operation_has_a_figure_and_its_raw_one(hosts: str, tmp_path: Path) -> None:
    found = figures(operations.main, tmp_path, "--hosts", hosts, "--rounds", "1", "--count", "4", "--in-flight", "2")
    assert {"get_children of 1,000", "codec: create", "codec: get"} <= set(found["operations"])
    for one in found["operations"].values():
        assert one["zkwire"]["median"] > 0
        assert one["raw"]["median"] > 0


def test_the_suite_gathers_figures_of_the_programs(hosts: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(suite.PROGRAMS, "operations", suite.Program("operations.py", ("--rounds", "1", "--count", "2")))
    monkeypatch.setitem(suite.PROGRAMS, "crowds", suite.Program("crowds.py", ("--no-such-option",)))
    file = tmp_path / "figures.json"
    assert suite.main(["--hosts", hosts, "--only", "operations", "crowds", "--json", str(file)]) == 2
    found = json.loads(file.read_text(encoding="utf-8"))["benchmarks"]
    assert found["operations"]["status"] == 0
    assert found["operations"]["figures"]["operations"]["get"]["zkwire"]["median"] > 0
    assert found["crowds"]["status"] == 2
    assert found["crowds"]["figures"] is None


def test_what_could_not_be_measured_is_a_line_and_a_status(capfd: pytest.CaptureFixture[str]) -> None:
    assert operations.main(["--hosts", "127.0.0.1:1"]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("bench/operations.py: ")
