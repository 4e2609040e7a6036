"""The verbs for administrators of an ensemble: permissions, identities, counts, the list of servers.

`Client` inherits all of them.  They have a file of their own because few programs use them.
"""

import base64
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from zkwire import paths
from zkwire.client.requester import Verbs, check_number, checked_acl, checked_version
from zkwire.client.watch import Watch, WatchSet
from zkwire.session.credentials import scrub_traceback
from zkwire.session.hosts import CONFIG
from zkwire.wire import requests
from zkwire.wire.records import ACL, Perms, Stat
from zkwire.wire.watch_table import WatchKind

# A list of servers: one string in the server's format, a list of its entries, or the `members` of a Configuration.
Members: TypeAlias = str | Iterable[str] | Mapping[int, str]
Ids: TypeAlias = int | str | Iterable[int]


class ClientInfo(NamedTuple):
    """One identity of a session, such as ("ip", "127.0.0.1") or ("digest", "bob"); the password's hash is not shown."""

    scheme: str
    user: str


class Configuration(NamedTuple):
    """The dynamic configuration of the ensemble as bytes (empty on a single server), and the Stat of its node."""

    data: bytes
    stat: Stat

    @property
    def members(self) -> dict[int, str]:
        """The servers, by their ids: {4: "host:port:port:role;host:port"}."""
        entries = (line.partition("=") for line in self._lines() if line.startswith("server."))
        return {int(key.removeprefix("server.")): value for key, _, value in entries}

    @property
    def version(self) -> int:
        """The version of the configuration, for `reconfig(from_config=...)`; -1 on a single server."""
        for line in self._lines():
            if line.startswith("version="):
                return int(line.removeprefix("version="), 16)
        return -1

    def _lines(self) -> list[str]:
        return [line.strip() for line in self.data.decode("utf-8", "replace").splitlines()]


class Administration(Verbs):
    """The administrative verbs of a Client."""

    async def get_acl(self, path: str) -> tuple[list[ACL], Stat]:
        """Return the node's ACL and Stat (request: getACL).

        Without the permission ADMIN, the server shows the hashes of digest entries as "x".

        Args:
            path: The node.

        Returns:
            The entries, and the node's Stat.

        Raises:
            NoNodeError: If there is no such node.
            NoAuthError: If the ACL grants neither READ nor ADMIN.
        """
        reply = await self._ask(requests.GetACLRequest(self._server_path(path)))
        return list(reply.acl), reply.stat

    async def set_acl(self, path: str, acl: Sequence[ACL], version: int = -1) -> Stat:
        """Replace the node's ACL and return the new Stat (request: setACL).

        Nodes below do not inherit the ACL.  No watch fires.

        Args:
            path: The node.
            acl: The new entries.
            version: The `aversion` that the Stat must have, -1 for any.

        Returns:
            The Stat after the change.

        Raises:
            NoNodeError: If there is no such node.
            NoAuthError: If the ACL does not grant ADMIN.
            BadVersionError: If the ACL has another version.
            InvalidACLError: If the server cannot check the new ACL.
        """
        server_path = self._server_path(path)
        return (await self._ask(requests.SetACLRequest(server_path, checked_acl(acl), checked_version(version)))).stat

    async def whoami(self) -> list[ClientInfo]:
        """Return the identities by which ACLs know this session, in no order (request: whoAmI, ZooKeeper 3.7).

        Returns:
            One entry for each identity.

        Raises:
            UnimplementedError: If the server is older.
        """
        reply = await self._ask(requests.WhoAmIRequest())
        return [ClientInfo(each.scheme, each.user or "") for each in reply.identities]

    async def get_ephemerals(self, prefix: str = "/") -> list[str]:
        """Return the paths of this session's ephemeral nodes, in no order (request: getEphemerals, ZooKeeper 3.6).

        Args:
            prefix: The beginning of the paths, as text: "/a" matches "/ab" too, "/a/" does not.

        Returns:
            The paths.

        Raises:
            UnimplementedError: If the server is older.
        """
        paths.validate(prefix, sequential=True)
        chroot = self._requester.chroot
        server_prefix = chroot if prefix == "/" else chroot + prefix
        found = (await self._ask(requests.GetEphemeralsRequest(server_prefix))).ephemerals
        # The server does not know about chroots, and compares text: for the chroot /app it returns /app2/x as well.
        return [paths.strip_chroot(chroot, path) for path in found if f"{path}/".startswith(f"{chroot}/")]

    async def count_descendants(self, path: str) -> int:
        """Return the number of nodes below the node, at any depth (request: getAllChildrenNumber, ZooKeeper 3.6).

        The count for the root of the server includes the nodes below /zookeeper.

        Args:
            path: The node.

        Returns:
            The number of nodes, without the node itself.

        Raises:
            NoNodeError: If there is no such node.
            UnimplementedError: If the server is older.
        """
        return (await self._ask(requests.GetAllChildrenNumberRequest(self._server_path(path)))).number

    async def get_config(self) -> Configuration:
        """Return the ensemble's configuration and the Stat of its node (request: getData of /zookeeper/config).

        Use it as ``data, stat = await zk.get_config()``, or read its `members` and `version`.  A chroot does not
        matter.

        Returns:
            The configuration.

        Raises:
            NoNodeError: If the server is older than ZooKeeper 3.5.
        """
        reply = await self._ask(requests.GetDataRequest(CONFIG, False))
        return Configuration(reply.data or b"", reply.stat)

    async def get_config_and_watch(self, *, into: WatchSet | None = None) -> tuple[Configuration, Watch]:
        """Return what `get_config` returns, and a watch for the next change of the configuration.

        A chroot does not matter; the `path` of the watch and of its event is "/zookeeper/config".

        Args:
            into: A WatchSet to which the watch is added.

        Returns:
            The configuration and the watch.

        Raises:
            NoNodeError: If the server is older than ZooKeeper 3.5.
        """
        request = requests.GetDataRequest(CONFIG, True)
        reply, watch = await self._requester.ask_and_watch(request, CONFIG, into, WatchKind.DATA)
        return Configuration(reply.data or b"", reply.stat), watch

    async def reconfig(
        self,
        *,
        joining: Members | None = None,
        leaving: Ids | None = None,
        members: Members | None = None,
        from_config: int = -1,
    ) -> Configuration:
        """Change the members of the ensemble and return the new configuration (request: reconfig).

        Args:
            joining: Servers to add or to change, each "server.4=host:port:port:role;port", as a list, as one string
                with commas between, or as {4: "host:port:port:role;port"}.
            leaving: The ids of servers to remove.
            members: The complete new list of servers, in the forms of `joining`, which must then be left out.
            from_config: The `version` that the present configuration must have, -1 for any.

        Returns:
            The new configuration.

        Raises:
            ReconfigDisabledError: Unless the servers have reconfigEnabled=true.
            NoAuthError: Unless the session may write /zookeeper/config.
            BadVersionError: If the configuration has another version.
            BadArgumentsError: If the server cannot read a list.
            ReconfigInProgressError: If another change is under way.
            NewConfigNoQuorumError: If too few of the new members are connected to the leader.
            UnimplementedError: If the server is no member of an ensemble.
            ConnectionLostError: If the answer is lost, as it is when the connected server is one of those that leave.

        Cancellation:
            The change may have happened.
        """
        reply = await self._ask(reconfiguration(joining, leaving, members, from_config))
        return Configuration(reply.data or b"", reply.stat)


@scrub_traceback
def digest_acl(user: str, password: str, perms: int = Perms.ALL) -> ACL:
    """Return the ACL entry that allows `perms` to every client that authenticates as `user` with `password`.

    Only a hash of both leaves this process: base64(sha1("user:password")).

    Args:
        user: The name, without a ":".  Do not use characters above U+FFFF: servers store them in a form that they
            cannot read back, and refuse the user after a restart.
        password: The password.
        perms: What is allowed, see Perms.

    Returns:
        The entry.

    Raises:
        ValueError: If `user` contains ":", because the server takes everything after it for the password.
        TypeError: If an argument is not a str.
    """
    # Without the values in the errors: they may be the password, or the hash of one.
    if not isinstance(user, str) or not isinstance(password, str):
        raise TypeError(f"user and password must be str, not {type(user).__name__} and {type(password).__name__}")
    if ":" in user:
        raise ValueError("the user's name must not contain ':'")
    try:
        secret = f"{user}:{password}".encode()
    except UnicodeEncodeError:
        raise ValueError("user and password must have a UTF-8 form: one of them contains half a character") from None
    import hashlib  # few programs come here

    digest = base64.b64encode(hashlib.sha1(secret, usedforsecurity=False).digest()).decode()
    return ACL(perms, "digest", f"{user}:{digest}")


def reconfiguration(
    joining: Members | None, leaving: Ids | None, members: Members | None, from_config: int
) -> requests.ReconfigRequest:
    """Return the request for these arguments of `Client.reconfig`."""
    if members is not None and (joining is not None or leaving is not None):
        raise ValueError("reconfig takes either `members`, or `joining` and `leaving`, but not both")
    if members is None and joining is None and leaving is None:
        raise ValueError("reconfig needs `joining`, `leaving` or `members`")
    wanted = "the version of a configuration, or -1 for any"
    check_number("from_config", from_config, int, wanted, least=-1, most=2**63 - 1)
    if isinstance(leaving, int) and not isinstance(leaving, bool):
        leaving = [leaving]
    return requests.ReconfigRequest(
        _text("joining", joining, str), _text("leaving", leaving, int), _text("members", members, str), from_config
    )


def _text(name: str, value: object, kind: type) -> str | None:
    """Return the entries of `value`, each of the type `kind`, as one string with commas between."""
    if value is None:
        return None
    if isinstance(value, Mapping) and kind is str:
        value = [f"server.{number}={address}" for number, address in value.items()]
    if not isinstance(value, str):
        # Bytes and mappings can be iterated too, but not to the entries that were meant: they count as one wrong entry.
        entries = list(value) if isinstance(value, Iterable) and not isinstance(value, bytes | Mapping) else [None]
        if any(isinstance(entry, bool) or not isinstance(entry, kind) for entry in entries):
            raise TypeError(f"{name} must be a str or a list of {kind.__name__}, not {value!r}")
        value = ",".join(map(str, entries))
    if not value.strip():
        raise ValueError(f"{name} is empty: leave it out")
    return value
