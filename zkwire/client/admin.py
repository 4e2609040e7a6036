"""The verbs for administrators of an ensemble: permissions, identities, counts, the list of servers.

`Client` inherits all of them.  They have a file of their own because few programs use them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from zkwire import paths
from zkwire.client.arguments import checked_acl, checked_version
from zkwire.client.reconfig import Configuration, Ids, Members, reconfiguration
from zkwire.client.requester import Requester
from zkwire.client.watch import Watch, WatchSet
from zkwire.session.hosts import CONFIG
from zkwire.wire.records import ACL, Stat
from zkwire.wire.requests import (
    GetACLRequest,
    GetAllChildrenNumberRequest,
    GetDataRequest,
    GetEphemeralsRequest,
    SetACLRequest,
    WhoAmIRequest,
)
from zkwire.wire.watch_table import WatchKind


class ClientInfo(NamedTuple):
    """One identity of a session, such as ("ip", "127.0.0.1") or ("digest", "bob"); the password's hash is not shown."""

    scheme: str
    user: str


class Administration:
    """The administrative verbs of a Client."""

    _requester: Requester

    async def get_acl(self, path: str) -> tuple[list[ACL], Stat]:
        """Return the node's ACL and Stat (request: getACL).

        Without the permission ADMIN, the server shows the hashes of digest entries as "x".
        Raises: NoNodeError, NoAuthError.
        """
        reply = await self._requester.ask(GetACLRequest(self._requester.server_path(path)))
        return list(reply.acl), reply.stat

    async def set_acl(self, path: str, acl: Sequence[ACL], version: int = -1) -> Stat:
        """Replace the node's ACL if the Stat's `aversion` is `version` (-1: any) and return the new Stat (request:
        setACL).

        Nodes below do not inherit the ACL.  No watch fires.
        Raises: NoNodeError, NoAuthError without the permission ADMIN, BadVersionError, InvalidACLError.
        """
        server_path = self._requester.server_path(path)
        return (await self._requester.ask(SetACLRequest(server_path, checked_acl(acl), checked_version(version)))).stat

    async def whoami(self) -> list[ClientInfo]:
        """Return the identities by which ACLs know this session, in no order (request: whoAmI, ZooKeeper 3.7).

        Raises: UnimplementedError.
        """
        reply = await self._requester.ask(WhoAmIRequest())
        return [ClientInfo(each.scheme, each.user or "") for each in reply.identities]

    async def get_ephemerals(self, prefix: str = "/") -> list[str]:
        """Return the paths of this session's ephemeral nodes, in no order (request: getEphemerals, ZooKeeper 3.6).

        Arguments: `prefix`, the beginning of the paths, as text: "/a" matches "/ab" too, "/a/" does not.
        Raises: UnimplementedError.
        """
        paths.validate(prefix, sequential=True)
        chroot = self._requester.chroot
        server_prefix = chroot + prefix if prefix != "/" else chroot or "/"
        found = (await self._requester.ask(GetEphemeralsRequest(server_prefix))).ephemerals
        # The server does not know about chroots, and compares text: for the chroot /app it returns /app2/x as well.
        ours = [path for path in found if path == chroot or path.startswith(f"{chroot}/")]
        return [paths.strip_chroot(chroot, path) for path in ours]

    async def count_descendants(self, path: str) -> int:
        """Return the number of nodes below the node, at any depth (request: getAllChildrenNumber, ZooKeeper 3.6).

        The count for the root of the server includes the nodes below /zookeeper.
        Raises: NoNodeError, UnimplementedError.
        """
        return (await self._requester.ask(GetAllChildrenNumberRequest(self._requester.server_path(path)))).number

    async def get_config(self) -> Configuration:
        """Return the ensemble's configuration and the Stat of its node (request: getData of /zookeeper/config).

        Use it as `data, stat = await zk.get_config()`, or read its `members` and `version`.  A chroot does not matter.
        Raises: NoNodeError before ZooKeeper 3.5.
        """
        reply = await self._requester.ask(GetDataRequest(CONFIG, False))
        return Configuration(reply.data or b"", reply.stat)

    async def get_config_and_watch(self, *, into: WatchSet | None = None) -> tuple[Configuration, Watch]:
        """Return what `get_config` returns, and a watch for the next change of the configuration.

        A chroot does not matter; the `path` of the watch and of its event is "/zookeeper/config".
        Arguments: `into`, a WatchSet to which the watch is added.
        Raises: NoNodeError before ZooKeeper 3.5.
        """
        request = GetDataRequest(CONFIG, True)
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

        Arguments: `joining`, servers to add or to change, each "server.4=host:port:port:role;port", as a list, as one
        string with commas between, or as {4: "host:port:port:role;port"}; `leaving`, ids of servers to remove; or
        `members`, the complete new list of servers, in the forms of `joining`; `from_config`, the `version` that the
        present configuration must have (-1: any).
        Raises: ReconfigDisabledError, unless the servers have reconfigEnabled=true; NoAuthError, unless the session may
        write /zookeeper/config; BadVersionError; BadArgumentsError for a list that the server cannot read;
        ReconfigInProgressError; NewConfigNoQuorumError; UnimplementedError by a server without an ensemble;
        ConnectionLostError, also when the connected server is one of those that leave.
        Cancellation: the change may have happened.
        """
        reply = await self._requester.ask(reconfiguration(joining, leaving, members, from_config))
        return Configuration(reply.data or b"", reply.stat)
