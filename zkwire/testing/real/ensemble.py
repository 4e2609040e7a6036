"""A quorum of real ZooKeeper servers on loopback, each a child process, for behaviour that one server does not show.

Knows how the members of one ensemble are configured to find each other. `zkwire.testing.real.server` runs one server.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final, Self, Unpack

from zkwire.testing.real.loopback import free_ports
from zkwire.testing.real.server import POLL_INTERVAL, QUICK_START, RealServer, RealServerOptions, ServerFailedError
from zkwire.testing.settings import check_number

READY_TIME_LIMIT: Final = 45.0


class EnsembleServer(RealServer):
    """One server of a RealEnsemble: a RealServer that serves only together with others.

    `start` waits until it leads, follows or observes, so start the servers of a quorum together. A server
    without a quorum serves nothing, or only reads where the ensemble allows that: see `mode`.
    """

    def __init__(
        self, number: int, ports: Sequence[int], *, is_observer: bool, **options: Unpack[RealServerOptions]
    ) -> None:
        super().__init__(**options)
        self.number = number
        self.is_observer = is_observer
        self._given_ports = ports  # for clients, for clients with TLS, for the quorum, and for elections
        self._others: tuple[str, ...] = ()

    @property
    def spec(self) -> str:
        """The text that names this server in a reconfiguration: "server.1=127.0.0.1:q:e:participant;127.0.0.1:c"."""
        client, _, quorum, election = self._given_ports
        role = "observer" if self.is_observer else "participant"
        return f"server.{self.number}=127.0.0.1:{quorum}:{election}:{role};127.0.0.1:{client}"

    def join(self, others: Iterable[str]) -> None:
        """Set the `spec` of the other servers by which it finds its ensemble at its first start."""
        self._others = tuple(others)

    def _own_ports(self) -> Sequence[int]:
        return self._given_ports

    def _settings(self) -> dict[str, str]:
        settings = super()._settings()
        del settings["clientPort"], settings["clientPortAddress"]  # part of the server's own line
        return {
            **settings,
            "initLimit": "40",
            "syncLimit": "8",
            "standaloneEnabled": "false",
            **({"peerType": "observer"} if self.is_observer else {}),
            **dict(spec.split("=", 1) for spec in (self.spec, *self._others)),
        }

    def _configure(self) -> None:
        super()._configure()
        data = self.folder / "data"
        data.mkdir(exist_ok=True)
        (data / "myid").write_text(f"{self.number}\n", encoding="ascii")


class RealEnsemble:
    """Real ZooKeeper servers that form one ensemble on free loopback ports.

        async with RealEnsemble(size=3) as ensemble:
            async with zkwire.connect(ensemble.hosts) as zk:
                (await ensemble.leader()).kill()

    `servers` are its servers, each with `start`, `stop`, `kill`, `pause`, `resume`, `mode`, `is_leader` and `hosts`.
    As with RealServer, no process and no folder is left over, whatever happens.

    Args:
        size: How many servers vote.
        observers: How many more follow without a vote.
        read_only: Whether a server without a quorum serves reads to clients that accept that (about 2 s after it lost
            the quorum; sessions are local ones, as 3.7 and newer want it).
        reconfig: Whether the ensemble may be reconfigured, which is for the user "super" unless `properties` has
            `skipACL`.
        options: The others of RealServer.

    Raises:
        ZooKeeperMissingError: if no fitting ZooKeeper or no Java is found.
        ValueError: if no ensemble can have these settings.
    """

    def __init__(
        self,
        size: int = 3,
        *,
        observers: int = 0,
        read_only: bool = False,
        reconfig: bool = False,
        **options: Unpack[RealServerOptions],
    ) -> None:
        check_number("size", size, 1, 255)
        check_number("observers", observers, 0, 255 - size)
        settings: dict[str, str] = {}
        if read_only:
            settings |= {"localSessionsEnabled": "true", "localSessionsUpgradingEnabled": "true"}
            options["jvm"] = ["-Dreadonlymode.enabled=true", *options.get("jvm", QUICK_START)]
        if reconfig:
            settings["reconfigEnabled"] = "true"
        options["properties"] = {**settings, **(options.get("properties") or {})}
        self._options = options
        self._observing = range(size + 1, size + observers + 1)
        self.servers: list[EnsembleServer] = self._made(range(1, size + observers + 1))

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    @property
    def version(self) -> str:
        """The version of the servers, such as "3.9.5"."""
        return self.servers[0].version

    @property
    def hosts(self) -> str:
        """The connect string, with all servers, running or not.

        Raises:
            RuntimeError: before `start`.
        """
        return ",".join(server.hosts for server in self.servers)

    @property
    def secure_hosts(self) -> str:
        """The connect string of the ports for TLS.

        Raises:
            RuntimeError: before `start` and without `tls`.
        """
        return ",".join(server.secure_hosts for server in self.servers)

    async def start(self) -> None:
        """Start all servers and wait until one leads and each other follows.

        Raises:
            ServerFailedError: if a server dies or 45 s pass; the message has the end of a log.

        Cancellation:
            Like failure, it ends every process and removes every folder.
        """
        try:
            async with asyncio.TaskGroup() as group:  # the first failure stops the others, which would wait for it
                for server in self.servers:
                    group.create_task(server.start())
            await self.settled()
        except BaseException as error:
            await self.close()
            if isinstance(error, ExceptionGroup):
                raise error.exceptions[0] from None
            raise

    async def close(self) -> None:
        """End every server and remove its data.

        Cancellation:
            This contains no await, so it cannot be cancelled.
        """
        for server in self.servers:
            await server.close()

    async def settled(self) -> None:
        """Wait until every server leads, follows or observes; until then, an early server may serve reads alone.

        Raises:
            ServerFailedError: after 45 s, with the ends of the logs.
        """
        try:
            async with asyncio.timeout(READY_TIME_LIMIT):
                while {await server.mode() for server in self.servers} - {"leader", "follower", "observer"}:
                    await asyncio.sleep(POLL_INTERVAL)
        except TimeoutError as error:
            logs = "\n".join(server.log_tail() for server in self.servers)
            raise ServerFailedError(f"no quorum within {READY_TIME_LIMIT:g} s\n{logs}") from error

    async def leader(self) -> EnsembleServer:
        """Wait until a server leads, and return it; bound it with asyncio.timeout."""
        while True:
            for server in self.servers:
                if await server.is_leader():
                    return server
            await asyncio.sleep(POLL_INTERVAL)

    async def followers(self) -> list[EnsembleServer]:
        """Return the servers that follow now."""
        return [server for server in self.servers if await server.mode() == "follower"]

    async def add(self) -> EnsembleServer:
        """Start one more server, which follows without a vote until a reconfiguration lets its `spec` join.

        Errors are those of `start`; the new server then leaves nothing.
        """
        (server,) = self._made([max(server.number for server in self.servers) + 1])
        server.join(other.spec for other in self.servers)
        await server.start()
        self.servers.append(server)
        return server

    def _made(self, numbers: Sequence[int]) -> list[EnsembleServer]:
        free = free_ports(4 * len(numbers))  # all at once, so that they differ
        servers = [
            EnsembleServer(number, free[4 * at : 4 * at + 4], is_observer=number in self._observing, **self._options)
            for at, number in enumerate(numbers)
        ]
        for server in servers:
            server.join(other.spec for other in servers if other is not server)
        return servers
