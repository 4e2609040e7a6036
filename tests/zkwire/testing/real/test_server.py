"""The starter of real servers: it finds a ZooKeeper, runs it, does to it what tests ask, and leaves nothing."""

import asyncio
import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import zkwire
from tests.support.zklock import is_running
from zkwire.testing import RealServer, ServerFailedError, ZooKeeperMissingError, find_zookeeper
from zkwire.testing.real import installation

PROJECT = Path(__file__).parents[4]


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which servers make theirs, so that a test can see what is left."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without any ZooKeeper; the folder is the current one."""
    monkeypatch.delenv("ZOOKEEPER_HOME", raising=False)
    monkeypatch.setattr(installation, "PROJECT", tmp_path / "project")
    monkeypatch.setattr(installation, "DEBIAN_JARS", tmp_path / "debian")
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    return here


# Running a server


async def test_configuration_reaches_the_server_and_close_leaves_nothing(scratch: Path) -> None:
    properties = {"maxSessionTimeout": "7000", "snapCount": "777"}
    async with RealServer(tick_time=0.25, properties=properties, jvm=["-Dzkwire.test=yes"], fsync=False) as server:
        conf = dict(line.split("=", 1) for line in (await server.four_letter_word("conf")).splitlines() if "=" in line)
        assert conf["tickTime"] == "250"
        assert conf["minSessionTimeout"] == "500"
        assert conf["maxSessionTimeout"] == "7000"
        assert "777" in (server.folder / "zoo.cfg").read_text()
        command = _command_line(server.pid)
        assert "-Dzkwire.test=yes" in command
        assert "-Dzookeeper.forceSync=no" in command
        assert list(scratch.iterdir()) == [server.folder]
        assert _processes_in(scratch) == [server.pid]
    assert _processes_in(scratch) == []
    assert list(scratch.iterdir()) == []
    await server.close()


async def test_data_port_and_log_survive_what_tests_do_to_a_server() -> None:
    async with RealServer(fsync=False) as server, zkwire.connect(server.hosts) as zk:
        await zk.create("/kept")
        hosts, pid = server.hosts, server.pid
        server.pause()
        assert server.is_running
        assert await server.mode() is None
        server.resume()
        assert await server.four_letter_word("ruok") == "imok"
        with pytest.raises(RuntimeError, match="is running already"):
            await server.start()
        server.pause()
        server.kill()
        assert not is_running(pid)
        await server.start()
        assert await zk.exists("/kept") is not None
        server.pause()
        await server.restart()
        assert server.hosts == hosts
        assert await zk.exists("/kept") is not None
        assert server.log_tail(1000).count("binding to port") == 3
        pid = server.pid
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await server.stop()
        assert not is_running(pid)
        with pytest.raises(RuntimeError, match="not running"):
            server.pause()


# Nothing is left over


@pytest.mark.parametrize(
    ("option", "within", "why"),
    [
        ("-XX:NoSuchOption", 45.0, r"ended with 1 before it served.*\n(.*\n)*.*NoSuchOption"),
        ("-Dzkwire.test=yes", 0.01, r"did not serve within 0\.01 s"),
    ],
)
async def test_a_failed_start_raises_the_reason_and_leaves_nothing(
    scratch: Path, option: str, within: float, why: str
) -> None:
    with pytest.raises(ServerFailedError, match=why):
        await RealServer(jvm=[option]).start(within=within)
    assert _processes_in(scratch) == []
    assert list(scratch.iterdir()) == []


async def test_a_cancelled_start_leaves_nothing(scratch: Path) -> None:
    server = RealServer()
    start = asyncio.create_task(server.start())
    while not server.is_running:
        await asyncio.sleep(0)
    pid = server.pid
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    assert not is_running(pid)
    assert list(scratch.iterdir()) == []


START_AND_TELL = """
import asyncio
from zkwire.testing import RealServer
server = RealServer(sasl_users={"bob": "hidden"})
asyncio.run(server.start())
print(server.pid, flush=True)
input()
"""


async def test_a_killed_interpreter_takes_the_server_along_and_the_next_start_removes_its_folder(scratch: Path) -> None:
    """It holds passwords of users.  Folders of running servers and of other programs are left alone."""
    (scratch / "zookeeper-of-another-program").mkdir()

    async def after_a_start() -> set[str]:
        with pytest.raises(ServerFailedError):
            await RealServer(jvm=["-XX:NoSuchOption"]).start()
        return {each.name for each in scratch.iterdir()}

    with _interpreter(scratch) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        (folder,) = (each for each in scratch.iterdir() if "another" not in each.name)
        assert folder.stat().st_mode & 0o077 == 0
        assert await after_a_start() == {folder.name, "zookeeper-of-another-program"}
        parent.send_signal(signal.SIGKILL)
        parent.wait(30)
    while is_running(pid) or not _is_free(folder / "owner.lock"):
        await asyncio.sleep(0.01)
    assert (folder / "jaas.conf").exists()
    assert await after_a_start() == {"zookeeper-of-another-program"}


# Finding a ZooKeeper


def test_the_folder_beside_the_package_is_searched() -> None:
    assert Path(zkwire.__file__).parents[1] == installation.PROJECT


def test_zookeeper_home_without_a_zookeeper_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZOOKEEPER_HOME", str(tmp_path))
    with pytest.raises(ZooKeeperMissingError, match="ZOOKEEPER_HOME"):
        find_zookeeper()


def test_the_search_goes_from_near_to_far_and_from_new_to_old(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    debian = _install(bare.parent / "debian", "3.7.0")
    assert find_zookeeper().version == "3.7.0"
    assert debian in find_zookeeper().class_path
    _install(bare.parent / "project" / ".zookeeper" / "3.8.1", "3.8.1")
    assert find_zookeeper().version == "3.8.1"
    _install(bare.parent / ".zookeeper" / "3.8.2", "3.8.2")
    assert find_zookeeper().version == "3.8.2"
    _install(bare / ".zookeeper" / "3.9.9", "3.9.9")
    _install(bare / ".zookeeper" / "3.9.10", "3.9.10")
    assert find_zookeeper().version == "3.9.10"
    monkeypatch.setenv("ZOOKEEPER_HOME", str(_install(bare / "home" / "lib", "3.6.4").parents[1]))
    assert find_zookeeper().version == "3.6.4"


def test_an_unfinished_download_is_not_taken(bare: Path) -> None:
    _install(bare / ".zookeeper" / ".fetch-1a2b" / "3.9.5", "3.9.5")
    _install(bare / ".zookeeper" / ".fetch-1a2b", "3.9.5")
    with pytest.raises(ZooKeeperMissingError):
        find_zookeeper()


@pytest.mark.parametrize(
    "name", ["", "3.9.5", "3.9.5/zookeeper-3.9.5.jar", "3.9.5/lib", "3.9.5/lib/a.jar", "3.9.5/conf/a"]
)
def test_what_other_users_can_have_put_there_is_not_run(bare: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """In a folder such as /tmp, every user can make a .zookeeper.  `lib` is a link, and so is a jar that is gone."""
    store = bare.parent / ".zookeeper"
    _install(store / "3.9.5", "3.9.5")
    for folder in (bare / "jars", store / "3.9.5" / "conf"):
        folder.mkdir()
    for file in (bare / "jars" / "a.jar", store / "3.9.5" / "conf" / "a"):
        file.touch(0o600)
    (store / "3.9.5" / "lib").symlink_to(bare / "jars")
    (store / "3.9.5" / "gone.jar").symlink_to(bare / "gone.jar")
    assert find_zookeeper().version == "3.9.5"
    path = store / name
    path.chmod(0o777)
    left_out = rf"; {store}/3\.9\.5 is left out, because"
    with pytest.raises(
        ZooKeeperMissingError, match=f"{left_out} others may write to {path}: set ZOOKEEPER_HOME to use it$"
    ):
        find_zookeeper()
    path.chmod(0o755)
    monkeypatch.setattr(os, "getuid", lambda: store.stat().st_uid + 1)
    others = store
    if store.stat().st_uid == 0:  # what belongs to root may be run
        os.chown(path, 12345, -1)
        others = path
    with pytest.raises(ZooKeeperMissingError, match=f"{left_out} {others} belongs to another user: "):
        find_zookeeper()


# Helpers


def _is_free(lock: Path) -> bool:
    """Return whether no process holds the lock."""
    with lock.open() as file, contextlib.suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def _install(folder: Path, version: str) -> Path:
    """Put down a jar that is named like a ZooKeeper server's."""
    folder.mkdir(parents=True, exist_ok=True)
    jar = folder / f"zookeeper-{version}.jar"
    jar.touch()
    return jar


def _interpreter(scratch: Path) -> subprocess.Popen[str]:
    environment = os.environ | {"TMPDIR": str(scratch), "PYTHONPATH": str(PROJECT)}
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", START_AND_TELL], env=environment, stdin=pipe, stdout=pipe, text=True)


def _command_line(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


def _processes_in(folder: Path) -> list[int]:
    """The processes whose command line names a folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it ended meanwhile
            if str(folder) in _command_line(int(entry.name)) and is_running(int(entry.name)):
                found.append(int(entry.name))
    return found
