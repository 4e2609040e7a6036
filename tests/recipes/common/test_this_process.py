"""What a process is called in the data of its nodes."""

import os
import socket
import sys

import pytest

from recipes.common import this_process


@pytest.fixture(autouse=True)
def made_anew() -> None:
    this_process._describe.cache_clear()


def _program(monkeypatch: pytest.MonkeyPatch, *argv: str) -> str:
    monkeypatch.setattr(sys, "argv", list(argv))
    this_process._describe.cache_clear()
    return this_process.describe().decode().split(" ", 2)[2]


def test_it_says_host_process_and_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "web-1")
    monkeypatch.setattr(sys, "argv", ["/srv/jobs/backup.py"])
    assert this_process.describe() == f"web-1 {os.getpid()} backup.py".encode()
    assert this_process.describe("backup.sh") == f"web-1 {os.getpid()} backup.sh".encode()


def test_it_shows_no_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _program(monkeypatch, "/srv/backup.py", "--password=hunter2", "hunter2") == "backup.py"
    assert _program(monkeypatch, "/site-packages/uvicorn/__main__.py", "app:hunter2") == "uvicorn"


@pytest.mark.parametrize(
    ("executable", "name"), [("/usr/bin/python3.99", "python3.99"), ("", "python"), (None, "python")]
)
def test_without_a_program_it_says_which_python_runs(
    executable: str | None, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that embeds Python may have no executable."""
    monkeypatch.setattr(sys, "executable", executable)
    for argv in ([], [""], ["-c", "hunter2"], ["-m"]):
        assert _program(monkeypatch, *argv) == name


def test_strange_names_are_one_short_line(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _program(monkeypatch, "/srv/\x1b[2J\nx\udcff.py") == "?[2J?x?.py"
    assert _program(monkeypatch, "/srv/" + "x" * 1000) == "x" * 100
    for host, shown in ((" a host\n", "a-host?"), ("", "-")):
        monkeypatch.setattr(socket, "gethostname", lambda host=host: host)
        this_process._describe.cache_clear()
        assert this_process.describe().startswith(f"{shown} {os.getpid()} ".encode())


def test_it_is_made_once_for_each_process(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def gethostname() -> str:
        asked.append(1)
        return "web-1"

    monkeypatch.setattr(socket, "gethostname", gethostname)
    assert this_process.describe() is this_process.describe()
    assert len(asked) == 1
    monkeypatch.setattr(os, "getpid", lambda: 4712)  # as after a fork
    assert this_process.describe().split()[1] == b"4712"


def test_given_data_is_kept() -> None:
    assert this_process.or_described(b"") == b""
    assert this_process.or_described(None) == this_process.describe()
    with pytest.raises(TypeError, match="bytes"):
        this_process.or_described("text")  # type: ignore[arg-type]
