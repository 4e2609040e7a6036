"""One real, standalone ZooKeeper server as a child process, for tests and benchmarks.

This module knows how a server is configured and run, and when it is ready. It must not know the client: it detects
readiness by four-letter words on a plain socket. The process is a ``subprocess.Popen`` and not asyncio's, so that one
server can be used by several event loops, one after the other.
"""

import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self, TypedDict

from zkwire.testing.memory.access import digest_id
from zkwire.testing.real.certificates import Certificates
from zkwire.testing.real.folders import OwnFolder
from zkwire.testing.real.installation import find_java, find_zookeeper
from zkwire.testing.real.loopback import ask, free_ports
from zkwire.testing.settings import check_lines, check_seconds, check_text

START_TIME_LIMIT = 45.0
STOP_TIME_LIMIT = 10.0
POLL_INTERVAL = 0.03
PROBE_TIME_LIMIT = 0.25
TLS_PROBE_TIME_LIMIT = 5.0
LOG_TAIL_LINES = 30

# Without its second compiler Java starts in half the time, and this collector uses fewer threads.
QUICK_START: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")

_LOGGING: Final = ("defaultLogLevel=info", "showDateTime=true", "dateTimeFormat=HH:mm:ss.SSS")

_MODE = re.compile("^Mode: (.+)$", re.MULTILINE)


class ServerFailedError(RuntimeError):
    """A server died or did not become ready in time; the message ends with the last lines of its log."""


class RealServerOptions(TypedDict, total=False):
    """The settings of a RealServer, see there."""

    version: str | None
    tick_time: float
    properties: Mapping[str, str] | None
    jvm: Sequence[str]
    fsync: bool
    tls: Certificates | None
    sasl_users: Mapping[str, str] | None
    super_password: str | None


@dataclass(slots=True)
class _Belongings:
    """The process and the folder of a server, in an object of their own so that a finalizer can end them."""

    process: subprocess.Popen[bytes] | None = None
    folder: OwnFolder | None = None

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def discard(self) -> None:
        self.kill()
        if self.folder is not None:
            self.folder.remove()
            self.folder = None


class RealServer:
    """One standalone ZooKeeper server on a free loopback port, with a temporary data folder of its own.

        async with RealServer() as server:
            async with zkwire.connect(server.hosts) as zk: ...

    Nothing is left over: ``close``, a start that fails or is cancelled, a server that is garbage collected, and the end
    of the interpreter all end the process and remove the folder. On Linux the server also ends when the Python process
    is killed, if the system has ``setpriv``, and the next start by the same user removes the folder. It does not end
    with the process if it was started by another thread than the main one: it would end with that thread.

    Args:
        version: An exact version or a line; None means the first that ``find_zookeeper`` finds.
        tick_time: The server's tick in seconds; sessions may be as short as two ticks and as long as 60 s.
        properties: Further lines of the configuration file, which win over ours.
        jvm: Options of the ``java`` command; by default those with which it starts in half the time; () for the
            defaults of Java.
        fsync: Whether the server forces its log to disk before it answers a write, as it does by default.
        tls: Certificates, with which the server listens on a second port too, ``secure_hosts``, for TLS; it asks every
            client there for a certificate unless ``properties`` has ``ssl.clientAuth`` as "none" (3.6 on).
        sasl_users: Names and passwords of users that may log in by SASL's DIGEST-MD5.
        super_password: The password of the user "super" of scheme digest, which is not subject to ACLs.

    Raises:
        ZooKeeperMissingError: if no fitting ZooKeeper or no Java is found.
        NotImplementedError: on Windows.
        ValueError: if no server can have these settings.
        TypeError: if one of them has the wrong type.
    """

    def __init__(
        self,
        *,
        version: str | None = None,
        tick_time: float = 0.5,
        properties: Mapping[str, str] | None = None,
        jvm: Sequence[str] = QUICK_START,
        fsync: bool = True,
        tls: Certificates | None = None,
        sasl_users: Mapping[str, str] | None = None,
        super_password: str | None = None,
    ) -> None:
        check_seconds("tick_time", tick_time)
        check_lines("properties", properties or {})
        if bad := [name for name in properties or {} if "=" in name]:
            raise ValueError(f"properties: the name {bad[0]!r} contains '='")
        check_lines("sasl_users", sasl_users or {})
        if super_password is not None:
            check_text("super_password", super_password)
        if os.name != "posix":
            raise NotImplementedError(
                "real ZooKeeper servers are started on Linux and macOS only: use zkwire.testing.Server, or start a"
                " server by other means"
            )
        self._installation = find_zookeeper(version)
        self._java = find_java()
        self._tick_time = tick_time
        self._properties = dict(properties or {})
        self._jvm = [*(() if fsync else ("-Dzookeeper.forceSync=no",)), *jvm]
        self._tls = tls
        self._sasl_users = sasl_users
        self._super_password = super_password
        self._ports: Sequence[int] = ()  # for clients, for clients with TLS, and those that a subclass needs
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
        """The port that the server listens on, the same after ``restart``.

        Raises:
            RuntimeError: before ``start``.
        """
        if not self._ports:
            raise RuntimeError("the server has no port before it is started")
        return self._ports[0]

    @property
    def hosts(self) -> str:
        """The connect string, such as "127.0.0.1:20181".

        Raises:
            RuntimeError: before ``start``.
        """
        return f"127.0.0.1:{self.port}"

    @property
    def secure_hosts(self) -> str:
        """The connect string of the port for TLS.

        Raises:
            RuntimeError: before ``start`` and without ``tls``.
        """
        if self._tls is None or not self._ports:
            raise RuntimeError("the server has no port for TLS before it is started, and none unless tls= is given")
        return f"127.0.0.1:{self._ports[1]}"

    @property
    def folder(self) -> Path:
        """The folder with the server's configuration, log and data.

        Raises:
            RuntimeError: before ``start``.
        """
        if self._belongings.folder is None:
            raise RuntimeError("the server has no folder before it is started")
        return self._belongings.folder.path

    @property
    def pid(self) -> int:
        """The process id of the server.

        Raises:
            RuntimeError: if it does not run.
        """
        return self._running_process().pid

    @property
    def is_running(self) -> bool:
        """Whether the process is alive; a paused server is."""
        process = self._belongings.process
        return process is not None and process.poll() is None

    async def start(self, *, within: float = START_TIME_LIMIT) -> None:
        """Start the server and wait until it serves; one that was stopped or killed keeps its port and its data.

        Args:
            within: How many seconds it may take: a server of an ensemble serves only when it has found a quorum.

        Raises:
            ServerFailedError: if the process dies or ``within`` has passed; the message has the end of its log.
            RuntimeError: if it is running already.

        Cancellation:
            Like failure, it ends the process and removes the folder.
        """
        if self.is_running:
            raise RuntimeError(f"the server on {self.hosts} is running already")
        if self._belongings.folder is None:
            self._belongings.folder = OwnFolder()
        try:
            async with asyncio.timeout(within):
                await self._run()
        except TimeoutError as error:
            message = f"ZooKeeper {self.version} did not serve within {within:g} s\n{self.log_tail()}"
            await self.close()
            raise ServerFailedError(message) from error
        except BaseException:
            await self.close()
            raise

    async def stop(self) -> None:
        """End the server as an administrator would (SIGTERM) and keep its data; nothing happens if it is not running.

        A server that has not ended after 10 s is killed.

        Cancellation:
            The server is killed at once.
        """
        if not self.is_running:
            return
        self.resume()  # a paused process handles no signal but SIGKILL
        process = self._running_process()
        process.terminate()
        try:
            async with asyncio.timeout(STOP_TIME_LIMIT):
                while process.poll() is None:
                    await asyncio.sleep(POLL_INTERVAL)
        except TimeoutError:
            pass  # it is killed below, as when the stop is cancelled
        finally:
            self.kill()

    def kill(self) -> None:
        """Kill the server (SIGKILL), as a power cut would, and keep its data; it has ended when this returns."""
        self._belongings.kill()

    async def restart(self) -> None:
        """Stop the server if it runs and start it again on the same data and port.

        Errors and cancellation are those of ``stop`` and ``start``.
        """
        await self.stop()
        await self.start()

    def pause(self) -> None:
        """Freeze the process (SIGSTOP): connections stay open and nothing is answered. It is frozen when this returns.

        Raises:
            RuntimeError: if the server does not run.
        """
        process = self._running_process()
        process.send_signal(signal.SIGSTOP)
        if sys.platform != "darwin":
            os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """Continue a paused server (SIGCONT); nothing happens to a server that is not paused.

        Raises:
            RuntimeError: if the server does not run.
        """
        self._running_process().send_signal(signal.SIGCONT)

    async def four_letter_word(self, word: str) -> str:
        """Ask the server one of its four-letter words ("ruok", "mntr", "wchs") and return the answer.

        There is no time limit: a paused server does not answer.

        Raises:
            OSError: if the server cannot be reached.
            RuntimeError: before ``start``.

        Cancellation:
            The connection is closed.
        """
        return await ask(self.port, word)

    async def mode(self) -> str | None:
        """Return what the server is now: "standalone", "leader", "follower", "observer", "read-only", or None.

        It is None when the server is not running, is paused, has no quorum, or does not allow the word srvr.
        """
        found = _MODE.search(await self._probe("srvr"))
        return found[1] if found else None

    async def is_leader(self) -> bool:
        """Whether the server leads an ensemble now."""
        return await self.mode() == "leader"

    def log_tail(self, lines: int = LOG_TAIL_LINES) -> str:
        """Return the last lines of the server's log, over all its starts.

        Raises:
            RuntimeError: before ``start``.
        """
        text = (self.folder / "log").read_text(encoding="utf-8", errors="replace")
        return "\n".join(text.splitlines()[-lines:])

    async def close(self) -> None:
        """End the server, if it runs, and remove its folder. It may be started again, on another port and without data.

        As nothing is kept, the process is killed.

        Cancellation:
            This contains no await, so it cannot be cancelled.
        """
        self._belongings.discard()
        self._ports = ()

    def _running_process(self) -> subprocess.Popen[bytes]:
        process = self._belongings.process
        if process is None or process.poll() is not None:
            raise RuntimeError("the server is not running")
        return process

    def _own_ports(self) -> Sequence[int]:
        return free_ports(2)

    async def _run(self) -> None:
        """Spawn the process and wait until it serves."""
        if not self._ports:
            self._ports = self._own_ports()
            self._configure()
        process = self._spawn()  # the process may have ended by the time it is checked
        while not await self._serves():
            if process.poll() is not None:
                message = f"ZooKeeper {self.version} ended with {process.returncode} before it served on {self.hosts}"
                raise ServerFailedError(f"{message}\n{self.log_tail()}")
            await asyncio.sleep(POLL_INTERVAL)

    def _configure(self) -> None:
        """Write the configuration file; the server changes it itself when its ensemble is reconfigured."""
        settings = {**self._settings(), **self._properties}
        lines = "".join(f"{key}={value}\n" for key, value in settings.items())
        (self.folder / "zoo.cfg").write_text(lines, encoding="utf-8")
        if self._sasl_users is not None:
            (self.folder / "jaas.conf").write_text(_jaas(self._sasl_users), encoding="utf-8")

    def _settings(self) -> dict[str, str]:
        settings = {
            "tickTime": str(round(self._tick_time * 1000)),
            "dataDir": str(self.folder / "data"),
            "clientPort": str(self.port),
            "clientPortAddress": "127.0.0.1",
            "maxClientCnxns": "0",
            "maxSessionTimeout": "60000",
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "*",
        }
        if self._tls is not None:
            settings |= {
                "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
                "secureClientPort": str(self._ports[1]),
                "secureClientPortAddress": "127.0.0.1",
                "ssl.keyStore.location": str(self._tls.server.chain),
                "ssl.trustStore.location": str(self._tls.ca.certificate),
            }
        if self._sasl_users is not None:
            settings["authProvider.sasl"] = "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"
        return settings

    def _spawn(self) -> subprocess.Popen[bytes]:
        """Start the process."""
        own = []
        if self._super_password is not None:
            identity = digest_id(f"super:{self._super_password}")
            own.append(f"-Dzookeeper.DigestAuthenticationProvider.superDigest={identity}")
        if self._sasl_users is not None:
            own.append(f"-Djava.security.auth.login.config={self.folder / 'jaas.conf'}")
        command = [
            *_dies_with_us(),
            self._java,
            "-Xmx512m",
            "-Dzookeeper.extendedTypesEnabled=true",
            "-Dzookeeper.jmx.log4j.disable=true",
            *(f"-Dorg.slf4j.simpleLogger.{option}" for option in _LOGGING),
            *own,
            *self._jvm,
            *("-cp", os.pathsep.join(map(str, self._installation.class_path))),
            *("org.apache.zookeeper.server.quorum.QuorumPeerMain", str(self.folder / "zoo.cfg")),
        ]
        with (self.folder / "log").open("ab") as log:
            # A session of its own, so that Ctrl-C at the terminal reaches the tests and not the server.
            process = self._belongings.process = subprocess.Popen(
                command,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=[] if self._belongings.folder is None else [self._belongings.folder.lock],
            )
        return process

    async def _serves(self) -> bool:
        """Return whether this server answers requests.

        ``ruok`` does not show this: a server answers it 0.2 s before it answers requests, and so does another process
        that has taken the port. ``conf`` is answered with the data folder as soon as requests are. A server that has
        just started may fail on its missing database and leave the connection open without an answer, hence the time
        limit.
        """
        own = str(self.folder)
        # The server opens the port for TLS last.
        return own in await self._probe("conf") and (self._tls is None or own in await self._probe("conf", self._tls))

    async def _probe(self, word: str, tls: Certificates | None = None) -> str:
        """Return the answer to a four-letter word, "" if there is none in time."""
        # The first handshake of a server is slow.
        port, limit = (self._ports[1], TLS_PROBE_TIME_LIMIT) if tls else (self.port, PROBE_TIME_LIMIT)
        try:
            async with asyncio.timeout(limit):
                return await ask(port, word, tls)
        except OSError:  # refused, reset, or (TimeoutError is one) not answered
            return ""


def _dies_with_us() -> list[str]:
    """Return a command prefix that makes the kernel kill the command when the thread that started it ends."""
    setpriv = shutil.which("setpriv")
    if setpriv is None or sys.platform != "linux" or threading.current_thread() is not threading.main_thread():
        return []
    return [setpriv, "--pdeathsig", "KILL"]


def _jaas(users: Mapping[str, str]) -> str:
    """Return the file with the users that Java's login module accepts."""

    def quoted(text: str) -> str:
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

    known = " ".join(f"{quoted(f'user_{name}')}={quoted(password)}" for name, password in users.items())
    return f"Server {{\n  org.apache.zookeeper.server.auth.DigestLoginModule required {known};\n}};\n"
