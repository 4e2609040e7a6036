"""One real, standalone ZooKeeper server as a child process, for tests and benchmarks.

This module knows where a ZooKeeper's jars may lie, how the server is configured, and how to tell that it serves. It
must not know the client: readiness is seen through four-letter words on a plain socket. The process is a
``subprocess.Popen`` and not asyncio's, so that one server may outlive an event loop and serve many.
"""

import asyncio
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

START_TIME_LIMIT = 45.0
STOP_TIME_LIMIT = 10.0
POLL_INTERVAL = 0.01
PROBE_TIME_LIMIT = 0.25
LOG_TAIL_LINES = 30

# Where a port is looked for: below the range that Linux gives to outgoing connections. Inside it, a client that keeps
# connecting to a stopped server is in the end given the server's own port as its source, is connected to itself, and
# so keeps the server from coming back.
PORTS = range(15_000, 32_000)
PORT_ATTEMPTS = 5

# The folder that holds the package: in a checkout, the one that `make zookeeper` fills.
PROJECT = Path(__file__).resolve().parents[2]
DEBIAN_JARS = Path("/usr/share/java")
# Debian's zookeeper.jar names most of what it needs in its manifest. It leaves out a logger, and jars that netty
# needs for TLS.
DEBIAN_EXTRAS = ("slf4j-simple", "netty-codec", "netty-resolver", "netty-transport-native-unix-common")

_SERVER_JAR = re.compile(r"zookeeper-(\d+\.\d+\.\d+)\S*\.jar")


class ZooKeeperMissingError(RuntimeError):
    """No ZooKeeper that fits was found on this machine, or no Java to run it; the message says what to do."""


class ServerFailedError(RuntimeError):
    """A server died or did not become ready in time; the message ends with the last lines of its log."""


@dataclass(frozen=True, slots=True)
class Installation:
    """The jars of one ZooKeeper version."""

    version: str
    class_path: tuple[Path, ...]

    def __str__(self) -> str:
        return f"ZooKeeper {self.version} of {self.class_path[0].parent}"


def find_zookeeper(version: str | None = None) -> Installation:
    """Find a ZooKeeper on this machine.

    Looks at, in this order: the environment's ``ZOOKEEPER_HOME`` (an unpacked distribution);
    ``.zookeeper/<version>/`` in the current folder, in each folder above it, and beside the ``zkwire`` package, the
    newest first; Debian's package. ``version`` is an exact version ("3.8.4") or a line ("3.8"); None takes the first
    that is found.

    Raises ZooKeeperMissingError when there is none that fits.
    """
    candidates = []
    home = os.environ.get("ZOOKEEPER_HOME")
    if home:
        candidates.append(_installed_in(Path(home)))
        if candidates[-1] is None:
            raise ZooKeeperMissingError(f"ZOOKEEPER_HOME is {home}, and no zookeeper jar is there or in its lib folder")
    here = Path.cwd()
    for folder in dict.fromkeys((here, *here.parents, PROJECT)):
        store = folder / ".zookeeper"
        candidates += [_installed_in(store / name) for name in versions_in(store)]
    candidates.append(_installed_by_debian())
    for candidate in candidates:
        if candidate is not None and (version is None or fits(candidate.version, version)):
            return candidate
    wanted = f"ZooKeeper {version}" if version else "ZooKeeper"
    command = f"python -m zkwire.testing.fetch {version}" if version else "make zookeeper"
    raise ZooKeeperMissingError(
        f"{wanted} is not on this machine: run `{command}`, or set ZOOKEEPER_HOME to an unpacked ZooKeeper distribution"
    )


def versions_in(store: Path) -> list[str]:
    """The versions that a ``.zookeeper`` folder holds, newest first."""
    names = [jar.parent.name for jar in store.glob("*/zookeeper-*.jar") if _SERVER_JAR.fullmatch(jar.name)]
    numbered = [name for name in set(names) if re.fullmatch(r"\d+\.\d+\.\d+", name)]
    return sorted(numbered, key=lambda name: tuple(map(int, name.split("."))), reverse=True)


def fits(version: str, wanted: str) -> bool:
    """Whether a version is the one wanted, or of the line wanted ("3.9" is fitted by "3.9.5")."""
    return version == wanted or version.startswith(f"{wanted}.")


def _installed_in(home: Path) -> Installation | None:
    jars = sorted(home.glob("*.jar")) + sorted(home.glob("lib/*.jar"))
    for jar in jars:
        if match := _SERVER_JAR.fullmatch(jar.name):
            # A distribution's conf folder configures the logging that comes with it.
            conf = [home / "conf"] if (home / "conf").is_dir() else []
            return Installation(match[1], (jar, *jars, *conf))
    return None


def _installed_by_debian() -> Installation | None:
    for jar in DEBIAN_JARS.glob("zookeeper-*.jar"):
        if match := _SERVER_JAR.fullmatch(jar.name):
            return Installation(match[1], (jar, *(DEBIAN_JARS / f"{name}.jar" for name in DEBIAN_EXTRAS)))
    return None


@dataclass(slots=True)
class _Belongings:
    """What a server would leave behind: its process and its folder. Apart, so that a finalizer can hold it."""

    process: subprocess.Popen[bytes] | None = None
    folder: Path | None = None

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def discard(self) -> None:
        self.kill()
        if self.folder is not None:
            shutil.rmtree(self.folder)
            self.folder = None


class RealServer:
    """One standalone ZooKeeper server on a free loopback port, with a temporary data folder of its own.

    ::

        async with RealServer() as server:
            async with zkwire.connect(server.hosts) as zk: ...

    ``version``     an exact version or a line; None takes the first that ``find_zookeeper`` finds
    ``tick_time``   the server's tick in seconds; sessions may be as short as two ticks and as long as 60 s
    ``properties``  further lines of the configuration file, which win over ours
    ``jvm``         further options of the ``java`` command, which win over ours
    ``fsync``       whether the server forces its log to disk before it answers a write, as it does by default

    Raises ZooKeeperMissingError when no fitting ZooKeeper or no Java is found. Nothing is left behind by any path:
    ``close``, a start that fails or is cancelled, a server that is garbage collected, and the end of the interpreter
    all end the process and remove the folder. On Linux the process also dies with ours when ours is killed (where the
    system has ``setpriv``; a server that was started by another thread than the main one is exempt, as it would die
    with that thread).
    """

    def __init__(
        self,
        *,
        version: str | None = None,
        tick_time: float = 0.5,
        properties: Mapping[str, str] | None = None,
        jvm: Sequence[str] = (),
        fsync: bool = True,
    ) -> None:
        if not tick_time >= 0.001:
            raise ValueError(f"tick_time is {tick_time} s; the server counts whole milliseconds, one at least")
        self._installation = find_zookeeper(version)
        self._java = _find_java()
        self._tick_time = tick_time
        self._properties = dict(properties or {})
        self._jvm = [*(() if fsync else ("-Dzookeeper.forceSync=no",)), *jvm]
        self._port: int | None = None
        self._belongings = _Belongings()
        weakref.finalize(self, self._belongings.discard)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    @property
    def version(self) -> str:
        """The version of the server, such as "3.9.5"."""
        return self._installation.version

    @property
    def port(self) -> int:
        """The port that the server listens on, the same after ``restart``. Raises RuntimeError before ``start``."""
        if self._port is None:
            raise RuntimeError("the server has no port before it is started")
        return self._port

    @property
    def hosts(self) -> str:
        """The connect string, such as "127.0.0.1:20181". Raises RuntimeError before ``start``."""
        return f"127.0.0.1:{self.port}"

    @property
    def folder(self) -> Path:
        """The folder with the server's configuration, log and data. Raises RuntimeError before ``start``."""
        if self._belongings.folder is None:
            raise RuntimeError("the server has no folder before it is started")
        return self._belongings.folder

    @property
    def pid(self) -> int:
        """The process id of the server. Raises RuntimeError when it does not run."""
        return self._running_process().pid

    @property
    def is_running(self) -> bool:
        """Whether the process is alive; a paused server is."""
        process = self._belongings.process
        return process is not None and process.poll() is None

    async def start(self) -> None:
        """Start the server and wait until it serves; one that was stopped or killed keeps its port and its data.

        Raises ServerFailedError, with the end of the server's log, when the process dies or 45 s pass; RuntimeError
        when it runs already. Cancellation, like failure, ends the process and removes the folder.
        """
        if self.is_running:
            raise RuntimeError(f"the server on {self.hosts} runs already")
        if self._belongings.folder is None:
            self._belongings.folder = Path(tempfile.mkdtemp(prefix="zookeeper-"))
        serves = False
        try:
            async with asyncio.timeout(START_TIME_LIMIT):
                await self._launch()
            serves = True
        except TimeoutError as error:
            message = f"ZooKeeper {self.version} did not serve within {START_TIME_LIMIT:g} s"
            raise ServerFailedError(f"{message}\n{self.log_tail()}") from error
        finally:
            if not serves:
                self._forget()

    async def stop(self) -> None:
        """End the server as an administrator would (SIGTERM) and keep its data; nothing happens if it does not run.

        A server that has not ended after 10 s is killed. Cancellation kills it at once.
        """
        if not self.is_running:
            return
        self.resume()  # a stopped process takes no signal but SIGKILL
        process = self._running_process()
        process.terminate()
        try:
            async with asyncio.timeout(STOP_TIME_LIMIT):
                while process.poll() is None:
                    await asyncio.sleep(POLL_INTERVAL)
        except TimeoutError:
            pass  # it is killed like one whose stop is cancelled
        finally:
            self.kill()

    def kill(self) -> None:
        """End the server as a power cut would (SIGKILL) and keep its data; it is gone when this returns."""
        self._belongings.kill()

    async def restart(self) -> None:
        """Stop the server if it runs and start it again on the same data and port.

        Raises and is cancelled like ``stop`` and ``start``.
        """
        await self.stop()
        await self.start()

    def pause(self) -> None:
        """Freeze the process (SIGSTOP): connections stay open and nothing is answered. It is frozen when this returns.

        Raises RuntimeError when the server does not run.
        """
        process = self._running_process()
        process.send_signal(signal.SIGSTOP)
        if sys.platform != "darwin":
            os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """Let a paused server go on (SIGCONT); one that is not paused is left alone.

        Raises RuntimeError when the server does not run.
        """
        self._running_process().send_signal(signal.SIGCONT)

    async def four_letter_word(self, word: str) -> str:
        """Ask the server one of its four-letter words ("ruok", "mntr", "wchs") and return the answer.

        Raises OSError when the server cannot be reached, RuntimeError before ``start``. There is no time limit: a
        paused server does not answer. Cancellation closes the connection.
        """
        loop = asyncio.get_running_loop()
        answer = bytearray()
        with socket.socket() as connection:
            connection.setblocking(False)
            await loop.sock_connect(connection, ("127.0.0.1", self.port))
            await loop.sock_sendall(connection, word.encode("ascii"))
            while chunk := await loop.sock_recv(connection, 65536):
                answer += chunk
        return answer.decode()

    def log_tail(self, lines: int = LOG_TAIL_LINES) -> str:
        """The last lines of the server's log, over all its starts. Raises RuntimeError before ``start``."""
        text = (self.folder / "log").read_text(encoding="utf-8", errors="replace")
        return "\n".join(text.splitlines()[-lines:])

    async def close(self) -> None:
        """End the server, if it runs, and remove its folder. It may be started again, on another port and without data.

        As nothing is kept, the process is killed; there is no await in this, so nothing that could be cancelled.
        """
        self._forget()

    def _forget(self) -> None:
        self._belongings.discard()
        self._port = None

    def _running_process(self) -> subprocess.Popen[bytes]:
        process = self._belongings.process
        if process is None or process.poll() is not None:
            raise RuntimeError("the server does not run")
        return process

    async def _launch(self) -> None:
        """Spawn the process and wait until it serves; a new server changes its port if somebody else takes it."""
        attempts = PORT_ATTEMPTS if self._port is None else 1
        for left in reversed(range(attempts)):
            if attempts > 1:
                self._port = _free_port()
            log_start = self._spawn()
            process = self._running_process()
            while not await self._serves():
                if process.poll() is not None:
                    break
                await asyncio.sleep(POLL_INTERVAL)
            else:
                return
            if not (left and b"BindException" in (self.folder / "log").read_bytes()[log_start:]):
                message = f"ZooKeeper {self.version} ended with {process.returncode} before it served on {self.hosts}"
                raise ServerFailedError(f"{message}\n{self.log_tail()}")

    def _spawn(self) -> int:
        """Write the configuration, start the process, and return where in the log its lines begin."""
        settings = {
            "tickTime": str(round(self._tick_time * 1000)),
            "dataDir": str(self.folder / "data"),
            "clientPort": str(self.port),
            "clientPortAddress": "127.0.0.1",
            "maxClientCnxns": "0",
            "maxSessionTimeout": "60000",
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "*",
            **self._properties,
        }
        config = self.folder / "zoo.cfg"
        config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), encoding="utf-8")
        command = [
            *_dies_with_us(),
            self._java,
            "-Xmx512m",
            "-Dzookeeper.extendedTypesEnabled=true",
            "-Dzookeeper.jmx.log4j.disable=true",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=info",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
            *self._jvm,
            "-cp",
            os.pathsep.join(map(str, self._installation.class_path)),
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            str(config),
        ]
        with (self.folder / "log").open("ab") as log:
            log_start = log.tell()
            # A session of its own, so that Ctrl-C at the terminal reaches the tests and not the server.
            self._belongings.process = subprocess.Popen(
                command,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return log_start

    async def _serves(self) -> bool:
        """Whether this server answers requests.

        ``ruok`` does not tell: it is answered 0.2 s before requests are, and by a stranger on our port too. ``conf``
        is answered with the data folder once requests are. A server that is asked in the first moments of its life
        may trip over its own missing database and leave the connection open without an answer, hence the time limit.
        """
        try:
            async with asyncio.timeout(PROBE_TIME_LIMIT):
                return str(self.folder) in await self.four_letter_word("conf")
        except OSError:  # refused, reset, or (TimeoutError is one) not answered
            return False


def _find_java() -> str:
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=os.path.join(home, "bin") if home else None)
    if java is None:
        where = f"in JAVA_HOME ({home})" if home else "on the path"
        raise ZooKeeperMissingError(f"ZooKeeper needs Java, and no java command is {where}: install a Java runtime")
    return java


def _free_port() -> int:
    for port in random.sample(PORTS, k=100):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError(f"none of 100 ports tried between {PORTS.start} and {PORTS.stop} is free")


def _dies_with_us() -> list[str]:
    """The command that runs another so that the kernel kills it when the thread that started it ends."""
    setpriv = shutil.which("setpriv")
    if setpriv is None or sys.platform != "linux" or threading.current_thread() is not threading.main_thread():
        return []
    return [setpriv, "--pdeathsig", "KILL"]
