"""bench/suite.py: the command line of each benchmark, and what is said of each."""

import sys
from pathlib import Path

import pytest

from bench import suite
from bench.servers import ROOT
from bench.suite import PROGRAMS, Outcome, Program


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_benchmark_is_a_file_of_the_folder(name: str) -> None:
    assert (ROOT / "bench" / PROGRAMS[name].file).is_file()


def test_a_quick_run_has_its_arguments_behind_the_usual_ones() -> None:
    program = Program("some.py", ("--rounds", "9"), ("--rounds", "1"))
    usual = [sys.executable, "bench/some.py", "--rounds", "9", "--hosts", "h:1", "--json", "f"]
    quick = [sys.executable, "bench/some.py", "--rounds", "9", "--rounds", "1", "--hosts", "h:1", "--json", "f"]
    assert suite.command(program, "h:1", Path("f"), quick=False) == usual
    assert suite.command(program, "h:1", Path("f"), quick=True) == quick
    alone = Program("some.py", ("--rounds", "9"), has_servers=True)
    assert suite.command(alone, "h:1", Path("f"), quick=False) == [*usual[:4], "--json", "f"]


def test_the_table_has_a_line_for_each_with_the_share_that_the_host_took() -> None:
    lines = suite.table({"queues": Outcome(0, 12.3, 0.034, {}), "costs": Outcome(2, 1.0, None, None)})
    assert [line.split() for line in lines[1:]] == [["queues", "0", "12", "3.4%"], ["costs", "2", "1", "unknown"]]
