"""The starter of real servers: it finds a ZooKeeper, runs it, does to it what tests ask, and leaves nothing behind."""

import asyncio
import contextlib
import fcntl
import gc
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from zkwire.testing import RealServer, ServerFailedError, ZooKeeperMissingError, find_zookeeper, make_certificates
from zkwire.testing.real import installation
from zkwire.testing.real import server as real

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


async def test_a_started_server_answers(zookeeper: RealServer) -> None:
    assert zookeeper.is_running
    assert zookeeper.hosts == f"127.0.0.1:{zookeeper.port}"
    assert await zookeeper.four_letter_word("ruok") == "imok"
    assert f"version: {zookeeper.version}" in await zookeeper.four_letter_word("srvr")
    assert "binding to port" in zookeeper.log_tail(1_000_000)


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


@pytest.fixture(scope="module")
def _restarted() -> Iterator[RealServer]:
    server = RealServer(fsync=False)
    asyncio.run(server.start())
    yield server
    asyncio.run(server.close())


@pytest.fixture
def own(_restarted: RealServer) -> RealServer:
    """A running server; the test may stop and kill it."""
    if not _restarted.is_running:
        asyncio.run(_restarted.start())
    return _restarted


async def test_data_port_and_log_survive_kill_and_restart_also_of_a_paused_server(own: RealServer, path: str) -> None:
    await _create(own, path)
    hosts, pid = own.hosts, own.pid
    own.pause()
    own.kill()
    assert not own.is_running
    assert not _is_alive(pid)
    with pytest.raises(ConnectionRefusedError):
        await own.four_letter_word("ruok")
    await own.start()
    assert own.hosts == hosts
    assert await _create(own, path) == NODE_EXISTS
    own.pause()
    await own.restart()
    assert own.hosts == hosts
    assert await _create(own, path) == NODE_EXISTS
    assert own.log_tail(1000).count("binding to port") == 3


async def test_a_paused_server_is_silent_until_resumed(own: RealServer) -> None:
    own.pause()
    assert own.is_running
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await own.four_letter_word("ruok")
    own.resume()
    assert await own.four_letter_word("ruok") == "imok"


async def test_stop_is_orderly_and_may_be_repeated(own: RealServer) -> None:
    pid = own.pid
    await own.stop()
    await own.stop()
    assert not own.is_running
    assert not _is_alive(pid)
    for misuse in (own.pause, own.resume):
        with pytest.raises(RuntimeError, match="not running"):
            misuse()


async def test_a_cancelled_stop_kills(own: RealServer) -> None:
    pid = own.pid
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await own.stop()
    assert not _is_alive(pid)


async def test_a_running_server_cannot_be_started_twice(zookeeper: RealServer) -> None:
    with pytest.raises(RuntimeError, match="is running already"):
        await zookeeper.start()
    assert await zookeeper.four_letter_word("ruok") == "imok"


def test_a_server_that_was_never_started_has_no_address() -> None:
    server = RealServer()
    assert not server.is_running
    with pytest.raises(RuntimeError, match="before it is started"):
        _ = server.hosts
    with pytest.raises(RuntimeError, match="before it is started"):
        _ = server.folder


def test_a_tick_shorter_than_a_millisecond_is_refused() -> None:
    with pytest.raises(ValueError, match="whole milliseconds"):
        RealServer(tick_time=0.0005)


async def test_ports_taken_meanwhile_are_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tls = make_certificates(tmp_path)
    monkeypatch.setattr(real, "POLL_INTERVAL", 0.2)  # a server whose port for TLS is taken needs seconds to end
    free = real._free_port
    closing = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    with _listening() as plain:
        secure = closing.sockets[0].getsockname()[1]
        first = iter([plain, free(), free(), secure])
        monkeypatch.setattr(real, "_free_port", lambda: next(first, None) or free())
        async with closing, RealServer(tls=tls) as server:
            assert next(first, None) is None
            assert not {plain, secure} & {server.port, int(server.secure_hosts.partition(":")[2])}
            assert await server.four_letter_word("ruok") == "imok"


def test_ports_taken_together_are_different(monkeypatch: pytest.MonkeyPatch) -> None:
    ports = iter([20_001, 20_001, 20_002])
    monkeypatch.setattr(real, "_free_port", lambda: next(ports))
    assert real.free_ports(2) == [20_001, 20_002]


# Nothing is left behind


async def test_a_failed_start_raises_the_reason_and_leaves_nothing(scratch: Path) -> None:
    server = RealServer(jvm=["-XX:NoSuchOption"])
    with pytest.raises(ServerFailedError, match=r"ended with 1 before it served.*\n(.*\n)*.*NoSuchOption"):
        await server.start()
    assert _processes_in(scratch) == []
    assert list(scratch.iterdir()) == []


async def test_a_restart_on_a_port_taken_meanwhile_raises_the_reason_and_leaves_nothing(scratch: Path) -> None:
    server = RealServer()
    await server.start()
    await server.stop()
    with _listening(server.port), pytest.raises(ServerFailedError, match="Address already in use"):
        await server.start()
    assert list(scratch.iterdir()) == []


async def test_a_start_that_takes_too_long_leaves_nothing(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(real, "START_TIME_LIMIT", 0.01)
    server = RealServer()
    with pytest.raises(ServerFailedError, match=r"did not serve within 0\.01 s"):
        await server.start()
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
    assert not _is_alive(pid)
    assert list(scratch.iterdir()) == []


async def test_a_forgotten_server_is_collected(scratch: Path) -> None:
    server = RealServer()
    await server.start()
    del server
    gc.collect()
    assert _processes_in(scratch) == []
    assert list(scratch.iterdir()) == []


START_AND_TELL = """
import asyncio
from zkwire.testing import RealServer
server = RealServer()
asyncio.run(server.start())
print(server.pid, flush=True)
input()
"""


def test_the_end_of_the_interpreter_ends_the_server(tmp_path: Path) -> None:
    with _interpreter(START_AND_TELL, tmp_path) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert _is_alive(pid)
        parent.stdin.write("\n")
        parent.stdin.flush()
        assert parent.wait(30) == 0
    assert not _is_alive(pid)
    assert list(tmp_path.iterdir()) == []


async def test_a_killed_interpreter_takes_the_server_along_and_the_next_start_removes_its_folder(scratch: Path) -> None:
    """It holds passwords of users.  Folders of servers that run, and those of other programs, are left alone."""
    program = START_AND_TELL.replace("RealServer()", 'RealServer(sasl_users={"bob": "hidden"})')
    (scratch / "zookeeper-of-another-program").mkdir()

    async def after_a_start() -> set[str]:
        with pytest.raises(ServerFailedError):
            await RealServer(jvm=["-XX:NoSuchOption"]).start()
        return {each.name for each in scratch.iterdir()}

    with _interpreter(program, scratch) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        (folder,) = (each for each in scratch.iterdir() if "another" not in each.name)
        assert folder.stat().st_mode & 0o077 == 0
        assert await after_a_start() == {folder.name, "zookeeper-of-another-program"}
        parent.send_signal(signal.SIGKILL)
        parent.wait(30)
    while _is_alive(pid) or not _is_free(folder / "owner.lock"):
        await asyncio.sleep(0.01)
    assert (folder / "jaas.conf").exists()
    assert await after_a_start() == {"zookeeper-of-another-program"}


@pytest.mark.parametrize("name", ["posix", "nt"])
def test_windows_is_refused_with_a_reason(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(real, "_SYSTEM", name)
    if name == "posix":
        RealServer()
        return
    with pytest.raises(NotImplementedError, match="Linux and macOS"):
        RealServer()


# Finding a ZooKeeper


async def test_zookeeper_home_is_looked_at_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lib").mkdir()
    version = find_zookeeper().version
    for jar in find_zookeeper().class_path:
        if jar.suffix == ".jar" and not (tmp_path / "lib" / jar.name).exists():
            (tmp_path / "lib" / jar.name).symlink_to(jar)
    monkeypatch.setenv("ZOOKEEPER_HOME", str(tmp_path))
    assert find_zookeeper().class_path[0].parent == tmp_path / "lib"
    async with RealServer() as server:
        assert server.version == version
        assert str(tmp_path / "lib") in _command_line(server.pid)


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


def test_a_version_or_a_line_may_be_asked_for(bare: Path) -> None:
    for version in ("3.8.4", "3.8.6", "3.9.5"):
        _install(bare / ".zookeeper" / version, version)
    assert find_zookeeper("3.8.4").version == "3.8.4"
    assert find_zookeeper("3.8").version == "3.8.6"
    assert find_zookeeper().version == "3.9.5"
    with pytest.raises(ZooKeeperMissingError, match=r"ZooKeeper 3\.9\.50 .*python -m zkwire\.testing\.fetch 3\.9\.50"):
        find_zookeeper("3.9.50")


def test_the_configuration_of_a_distributions_own_logging_is_used(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _install(bare / "home" / "lib", "3.9.5")
    (bare / "home" / "conf").mkdir()
    monkeypatch.setenv("ZOOKEEPER_HOME", str(bare / "home"))
    assert bare / "home" / "conf" in find_zookeeper().class_path


def test_an_unfinished_download_is_not_taken(bare: Path) -> None:
    _install(bare / ".zookeeper" / ".fetch-1a2b" / "3.9.5", "3.9.5")
    _install(bare / ".zookeeper" / ".fetch-1a2b", "3.9.5")
    with pytest.raises(ZooKeeperMissingError):
        find_zookeeper()


@pytest.mark.parametrize("inner", [False, True])
def test_jars_that_another_user_can_have_put_there_are_not_run(
    bare: Path, monkeypatch: pytest.MonkeyPatch, inner: bool
) -> None:
    """In a folder such as /tmp, every user can make a .zookeeper."""
    store = bare.parent / ".zookeeper"
    _install(store / "3.9.5", "3.9.5")
    assert find_zookeeper().version == "3.9.5"
    folder = store / "3.9.5" if inner else store
    folder.chmod(0o777)
    with pytest.raises(ZooKeeperMissingError, match=r"\.zookeeper.* left out.*others may write to it.*ZOOKEEPER_HOME"):
        find_zookeeper()
    folder.chmod(0o755)
    monkeypatch.setattr(os, "getuid", lambda: store.stat().st_uid + 1)
    if store.stat().st_uid == 0:  # what belongs to root may be run
        os.chown(folder, 12345, -1)
    with pytest.raises(ZooKeeperMissingError, match=r"\.zookeeper.* left out.*another user"):
        find_zookeeper()


def test_the_jars_beside_the_package_are_as_trusted_as_the_package(bare: Path) -> None:
    store = bare.parent / "project" / ".zookeeper"
    _install(store / "3.9.5", "3.9.5")
    store.chmod(0o777)
    assert find_zookeeper().version == "3.9.5"


def test_a_missing_zookeeper_says_what_to_run(bare: Path) -> None:
    with pytest.raises(ZooKeeperMissingError, match="make zookeeper"):
        RealServer()


def test_a_missing_java_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ZooKeeperMissingError, match="install a Java runtime"):
        RealServer()


# Helpers


def _is_free(lock: Path) -> bool:
    """Return whether no process holds the lock."""
    with lock.open() as file, contextlib.suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


NODE_EXISTS = -110


async def _create(server: RealServer, path: str) -> int:
    """Create a persistent znode and return the error code; by hand, as the starter is tested without the client."""

    def text(value: bytes) -> bytes:
        return struct.pack(">i", len(value)) + value

    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)

    async def call(body: bytes) -> bytes:
        writer.write(text(body))
        (length,) = struct.unpack(">i", await reader.readexactly(4))
        return await reader.readexactly(length)

    world = struct.pack(">i", 31) + text(b"world") + text(b"anyone")
    await call(struct.pack(">iqiq", 0, 0, 10_000, 0) + text(bytes(16)))
    acl = struct.pack(">i", 1) + world
    answer = await call(struct.pack(">ii", 1, 1) + text(path.encode()) + text(b"") + acl + bytes(4))
    _xid, _zxid, error = struct.unpack_from(">iqi", answer)
    writer.close()
    await writer.wait_closed()
    return int(error)


def _install(folder: Path, version: str) -> Path:
    """Put down a jar that is named like a ZooKeeper server's."""
    folder.mkdir(parents=True, exist_ok=True)
    jar = folder / f"zookeeper-{version}.jar"
    jar.touch()
    return jar


@contextmanager
def _listening(port: int = 0) -> Iterator[int]:
    """Something else that listens on a port, and never answers."""
    with socket.create_server(("127.0.0.1", port)) as stranger:
        yield stranger.getsockname()[1]


def _interpreter(program: str, scratch: Path) -> subprocess.Popen[str]:
    environment = os.environ | {"TMPDIR": str(scratch), "PYTHONPATH": str(PROJECT)}
    return subprocess.Popen(
        [sys.executable, "-c", program], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def _command_line(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


def _is_alive(pid: int) -> bool:
    """Whether a process runs; one that only waits to be reaped does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def _processes_in(folder: Path) -> list[int]:
    """The processes whose command line names a folder."""
    return [pid for pid, command in _command_lines() if str(folder) in command and _is_alive(pid)]


def _command_lines() -> Iterator[tuple[int, str]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                yield int(entry.name), _command_line(int(entry.name))
            except (FileNotFoundError, ProcessLookupError):
                continue  # it ended meanwhile
