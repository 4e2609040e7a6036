"""The client: one method for each of ZooKeeper's verbs.

This module checks arguments, translates paths below the chroot, and gives results their form.  It does not know how a
request travels or what a reconnect does: that is the session's job.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any, Final, TypeVar

from zkwire import paths
from zkwire.client.admin import Administration
from zkwire.client.arguments import Data, checked_data, checked_version, creation
from zkwire.client.batches import Batches
from zkwire.client.delete_tree import delete_tree
from zkwire.client.event_stream import BACKLOG, EventStream
from zkwire.client.in_words import in_words
from zkwire.client.node_streams import ChildrenStream, DataStream
from zkwire.client.operations import Node, new_node
from zkwire.client.requester import Requester
from zkwire.client.session_view import SessionView
from zkwire.client.transaction import Transaction
from zkwire.client.watch import Watch, WatchSet
from zkwire.errors import NoNodeError, SessionExpiredError
from zkwire.session import credentials, hosts
from zkwire.session.guaranteed_delete import GuaranteedDelete
from zkwire.session.session import Session
from zkwire.session.transport import check_loop
from zkwire.wire.jute import Record
from zkwire.wire.multi import MultiReply, MultiRequest
from zkwire.wire.records import ACL, OPEN_ACL, Stat
from zkwire.wire.requests import (
    DeleteRequest,
    ExistsRequest,
    GetChildren2Request,
    GetChildrenRequest,
    GetDataRequest,
    PingRequest,
    Request,
    SetDataRequest,
    SyncRequest,
)
from zkwire.wire.watch_table import WatchKind

_ANY_VERSION: Final = -1

R = TypeVar("R", bound=Record)


class Client(SessionView, Administration, Batches):
    """A ZooKeeper client; `zkwire.connect` makes it.

    Every verb is one request unless its docstring says otherwise.  Requests are sent in the order of the calls and
    answered in that order.  Verbs may be pipelined with asyncio.gather or tasks: those started in one turn of the event
    loop leave in one write.

    Raises, every verb: a subclass of ServerError when the server refuses; ConnectionLostError when the answer to a
    write is lost (reads are repeated on the next connection); SessionExpiredError and SessionClosedError when the
    session is over; ValueError or TypeError for bad arguments, before anything is sent.  While no server is connected,
    verbs wait for the next one: bound them with asyncio.timeout.  RuntimeError in another event loop or thread
    than the one that has connected the client.

    Cancellation, every verb: a request that was not yet written is not sent; an ephemeral node that a cancelled create
    has made is removed.  A cancelled write of another kind may have happened.

    Attributes: `on_uncertain` takes callbacks for the moment from which the session may have expired, see OnUncertain;
    `on_closed` takes callbacks for the end of the session, after which no other follows, see OnClosed.
    """

    def __init__(self, session: Session, chroot: str, rng: random.Random, identity_count: int = 0) -> None:
        self._session = session
        self._identity_count = identity_count
        self._loop = asyncio.get_running_loop()
        self.on_uncertain = session.lifetime.on_uncertain
        self.on_closed = session.on_closed
        self._requester = Requester(session, chroot, rng)
        self._ask = self._requester.ask
        self._server_path = self._requester.server_path

    __repr__ = in_words

    # -- the client ------------------------------------------------------------------------------------------------

    @property
    def identity_count(self) -> int:
        """How many identities this client shows to the servers: those of `auth`, `add_auth` and `sasl`, one for TLS.

        0: an ACL with the scheme "auth", such as CREATOR_ALL_ACL, is refused.  With TLS alone the server may refuse it
        as well: whether a certificate is shown, and gives an identity, is known there only.
        """
        return self._identity_count

    @property
    def chroot(self) -> str:
        """The path below which all paths of this client are, "" for none."""
        return self._requester.chroot

    def unique_id(self) -> str:
        """Return a new UUID, made with this client's own source of randomness (`rng` of `connect`)."""
        return self._requester.unique_id()

    async def ping(self) -> float:
        """Return how many seconds a ping took (request: ping).  The client sends its own pings to keep the session."""
        loop = asyncio.get_running_loop()
        start = loop.time()
        await self._ask(PingRequest())
        return loop.time() - start

    # -- identity and servers ---------------------------------------------------------------------------------------

    async def add_auth(self, scheme: str, data: bytes) -> None:
        """Add an identity to this client, on this connection and on every later one (request: auth).

        The client remembers the identity and sends it first on each new connection.
        Arguments: `scheme` and `data` as the server's plug-ins want them: "digest" takes b"user:password", and
        accepts every one.  It crosses the network as it is: without TLS everyone between can read the password.
        Raises: AuthFailedError when the server refuses it, and then the whole session is over: the state is
        AUTH_FAILED, all waiting requests fail with the same error, and the ephemeral nodes stay until the session has
        expired.  The same happens when a later server refuses it.  TypeError, ValueError.
        Cancellation: an identity that was not yet written is forgotten; one that was written stays remembered.
        Order: requests sent after it, awaited or not, have the identity.  While there is no connection it is put ahead
        of all waiting requests.
        """
        check_loop(self._loop)
        limit = self._session.requests.request_limit
        try:
            identity = credentials.checked(scheme, data, request_limit=limit)
        finally:
            del scheme, data  # a traceback with local variables must not show them
        self._identity_count += 1
        await self._session.add_auth(identity)

    def set_hosts(self, connect_string: str) -> None:
        """Replace the list of servers: "host[:port],..."; the client moves to another server at once if necessary.

        The client leaves a server that is no longer listed.  With some probability it also leaves one that is listed,
        so that many clients that get the same list spread evenly over the servers, and as few of them move as possible.
        A move is a reconnect: the session lives on, requests under way are answered first, waiting ones are sent to the
        new server.  Host names are compared as they are written.
        Arguments: `connect_string`, as for `connect`; its chroot, if there is one, must be this client's.
        Raises: TypeError, ValueError.
        """
        addresses, chroot = hosts.parse(connect_string)
        if chroot and chroot != self.chroot:
            raise ValueError(f"the chroot of {connect_string!r} is not the one of this client, {self.chroot!r}")
        check_loop(self._loop)
        self._session.set_hosts(addresses)

    # -- reading ----------------------------------------------------------------------------------------------------

    async def exists(self, path: str) -> Stat | None:
        """Return the node's Stat, or None if there is no such node (request: exists)."""
        try:
            return (await self._ask(ExistsRequest(self._server_path(path), False))).stat
        except NoNodeError:
            return None

    async def exists_and_watch(self, path: str, *, into: WatchSet | None = None) -> tuple[Stat | None, Watch]:
        """Return the node's Stat (None if absent) and a watch for its creation, its deletion or a change of its data.

        Arguments: `into`, a WatchSet to which the watch is added.
        """
        watch = self._requester.watch(path, into)
        try:
            reply = await self._ask(ExistsRequest(self._server_path(path), True), watch.watcher, WatchKind.EXIST)
        except NoNodeError:  # unlike the other reads, exists sets its watch on an absent node as well
            return None, watch
        except BaseException:
            watch.cancel()
            raise
        return reply.stat, watch

    async def get(self, path: str) -> Node:
        """Return the node's data and Stat (request: getData).  Raises: NoNodeError."""
        reply = await self._ask(GetDataRequest(self._server_path(path), False))
        return new_node((reply.data or b"", reply.stat))

    async def get_and_watch(self, path: str, *, into: WatchSet | None = None) -> tuple[Node, Watch]:
        """Return the node's data and Stat, and a watch for a change of its data or its deletion.

        Arguments: `into`, a WatchSet to which the watch is added.
        Raises: NoNodeError, and then no watch is left on client or server.
        """
        request = GetDataRequest(self._server_path(path), True)
        reply, watch = await self._requester.ask_and_watch(request, path, into, WatchKind.DATA)
        return new_node((reply.data or b"", reply.stat)), watch

    async def get_children(self, path: str) -> list[str]:
        """Return the names of the children, in no order (request: getChildren).  Raises: NoNodeError."""
        return (await self._ask(GetChildrenRequest(self._server_path(path), False))).children

    async def get_children_and_stat(self, path: str) -> tuple[list[str], Stat]:
        """Return the names of the children, in no order, and the Stat of the node itself (request: getChildren2).

        Raises: NoNodeError.
        """
        reply = await self._ask(GetChildren2Request(self._server_path(path), False))
        return reply.children, reply.stat

    async def get_children_and_watch(self, path: str, *, into: WatchSet | None = None) -> tuple[list[str], Watch]:
        """Return the names of the children, in no order, and a watch for the creation or deletion of a child, or the
        deletion of the node itself.

        Arguments: `into`, a WatchSet to which the watch is added.
        Raises: NoNodeError, and then no watch is left on client or server.
        """
        request = GetChildrenRequest(self._server_path(path), True)
        reply, watch = await self._requester.ask_and_watch(request, path, into, WatchKind.CHILD)
        return reply.children, watch

    async def get_children_stat_and_watch(
        self, path: str, *, into: WatchSet | None = None
    ) -> tuple[list[str], Stat, Watch]:
        """Return what `get_children_and_stat` returns, and the watch of `get_children_and_watch`, in one request."""
        request = GetChildren2Request(self._server_path(path), True)
        reply, watch = await self._requester.ask_and_watch(request, path, into, WatchKind.CHILD)
        return reply.children, reply.stat, watch

    async def sync(self, path: str) -> None:
        """Make the connected server catch up with everything that the leader has committed (request: sync).

        A read that is sent after it sees the result, and need not wait for the answer of the sync.
        """
        await self._ask(SyncRequest(self._server_path(path)))

    # -- writing ----------------------------------------------------------------------------------------------------

    async def create(
        self,
        path: str,
        data: Data = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        container: bool = False,
        ttl: float | None = None,
        acl: Sequence[ACL] = OPEN_ACL,
        make_parents: bool = False,
        protected: bool = False,
        recover: bool = False,
    ) -> str:
        """Create a node and return its path, which ends in the number that the server appends to a sequential node.

        Args:
            data: The node's data; None is null, and is read as b"".
            ephemeral: The server deletes the node when this session ends.
            sequential: The server appends a number of ten digits, which only grows below one parent.
            container: The server deletes the node some time after its last child is gone.
            ttl: In seconds; the server deletes the node once it has no children and has not been set for so long (the
                server looks every minute, by default).
            acl: The node's access control list.
            make_parents: Create missing parents as persistent nodes with the same ACL.
            protected: Put ``_c_<unique id>-`` before the last name, so that the node can be told from all others.  It
                implies `recover`, and the create is sent again when it is known that it was not carried out: a lost
                connection raises no error.
            recover: When the answer is lost with the connection, find out on the next connection whether the node was
                created.  If it was, return as usual; other creates of this client that wait for the same node raise.
                For ephemeral nodes, and for nodes with a unique id in the name.

        Raises:
            NodeExistsError: If there is a node at the path.
            NoNodeError: If the parent is missing.
            NoChildrenForEphemeralsError: If the parent is an ephemeral node.
            InvalidACLError: If the server cannot use the ACL.
            UnimplementedError: If the server is too old, or has TTL nodes switched off, which is the default.
            ConnectionLostError: If the answer was lost.  With `recover` only if the node was not created: then
                `maybe_applied` is False.  Without it, `maybe_applied` is True and the caller has to find out.
            ServerError: With `recover`, also if the server refuses to show whether the node was created; its hint says
                that it may have been.

        Cancellation:
            An ephemeral node that was created anyway is removed, and with `protected` or `recover` any node.  Without
            them a node of another kind stays: nothing would show that it is still the same one, and without the data of
            another client.

        Requests:
            create, createContainer (ZooKeeper 3.5.1), createTTL (3.5.3); with `protected` or `recover` create2 (3.5.0)
            in place of create, and after a lost answer sync, exists or getChildren; creates below one parent whose
            answers are lost together share one getChildren.
        """
        request: Request[Any] = creation(
            self.chroot,
            path,
            data,
            ephemeral=ephemeral,
            sequential=sequential,
            container=container,
            ttl=ttl,
            acl=acl,
            recover=recover,
            protection=self._requester.protection() if protected else "",
        )
        reply = await self._requester.create(request, make_parents=make_parents, protected=protected, acl=acl)
        return paths.strip_chroot(self.chroot, reply.path)

    async def create_and_stat(
        self,
        path: str,
        data: Data = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        container: bool = False,
        ttl: float | None = None,
        acl: Sequence[ACL] = OPEN_ACL,
        make_parents: bool = False,
        protected: bool = False,
        recover: bool = False,
    ) -> tuple[str, Stat]:
        """Create a node and return its path and Stat, in one round trip; otherwise as `create`.

        Requests:
            create2 (ZooKeeper 3.5.0) in place of create.
        """
        request: Request[Any] = creation(
            self.chroot,
            path,
            data,
            ephemeral=ephemeral,
            sequential=sequential,
            container=container,
            ttl=ttl,
            acl=acl,
            with_stat=True,
            recover=recover,
            protection=self._requester.protection() if protected else "",
        )
        reply = await self._requester.create(request, make_parents=make_parents, protected=protected, acl=acl)
        return paths.strip_chroot(self.chroot, reply.path), reply.stat

    async def ensure_path(self, path: str, *, container: bool = False, acl: Sequence[ACL] = OPEN_ACL) -> None:
        """Create the node and every missing node above it, the chroot included; nodes that exist stay as they are.

        Arguments: `container`, whether the node itself, if missing, becomes a container; those above are persistent.
        Order: all creates leave together, so that a request sent after them finds the path.
        Cancellation: the nodes that it has created stay.
        """
        await self._requester.ensure(self._server_path(path), container=container, acl=acl)

    async def set(self, path: str, data: Data, version: int = _ANY_VERSION) -> Stat:
        """Replace the node's data if its version is `version` (-1: any) and return the new Stat (request: setData).

        Raises: NoNodeError, BadVersionError.
        """
        request = SetDataRequest(self._server_path(path), checked_data(data), checked_version(version))
        return (await self._ask(request)).stat

    async def delete(self, path: str, version: int = _ANY_VERSION) -> None:
        """Delete the node if its version is `version` (-1: any) (request: delete).

        Raises: NoNodeError, BadVersionError, NotEmptyError.
        """
        await self._ask(DeleteRequest(self._server_path(path), checked_version(version)))

    async def delete_tree(self, path: str) -> None:
        """Delete the node and all nodes below it (requests: getChildren, multi, delete).

        It is no transaction: other clients may see a part of the tree gone.  It copes with clients that create and
        delete nodes in the tree meanwhile, unless they create without end.  A new node that another client creates at
        the path after the deletion is left alone.
        Raises: NoNodeError if there is no node at the beginning; NotEmptyError when nodes are created faster than they
        are deleted; NoAuthError, when a part of the tree may be deleted already; ZooKeeperError for a tree of more than
        about four million nodes, of which nothing is deleted; ValueError for the root and /zookeeper, which no server
        deletes.
        Cancellation: the nodes that are not yet deleted stay.
        """
        await delete_tree(self._requester, path)

    def discard(self, path: str, *, newest_zxid: int | None = None) -> asyncio.Future[None]:
        """Delete the node, with new attempts over lost connections, until it is known to be gone or the session ends.

        The first request is sent at once, in the order of the calls.  Returns a future that is done at that end, or
        after one or two seconds while no server answers; the attempts go on.  It need not be awaited, and never fails:
        a node that cannot be deleted is logged.
        Arguments: `newest_zxid`, the latest transaction that can have created the node; give it for a path at which
        another client may create a node: when the answer to a delete is lost, a newer node is left alone.
        """
        return self.guaranteed_delete(path, newest_zxid=newest_zxid).start()

    def guaranteed_delete(self, path: str, *, newest_zxid: int | None = None) -> GuaranteedDelete:
        """Prepare a `discard` and return it: its `start()` then costs no more than the write."""
        check_loop(self._loop)
        return self._session.requests.cleanup.deletes.prepare(self._server_path(path), newest_zxid)

    def transaction(self, *, session_id: int | None = None) -> Transaction:
        """Return a new transaction; `async with zk.transaction() as tx` commits at the end (request: multi).

        Arguments: `session_id`, the only session in which it may be carried out: when that session is over, the commit
        raises SessionExpiredError and nothing has happened, even if another session has followed.
        """

        async def commit(request: MultiRequest) -> MultiReply:
            if session_id is not None and self.session_id != session_id:
                raise SessionExpiredError(f"the session {session_id % 2**64:#x} of this transaction is over")
            return await self._ask(request)

        return Transaction(commit, self.chroot, self._requester.refusal, self._loop)

    # -- streams ----------------------------------------------------------------------------------------------------

    def events(self, path: str, *, recursive: bool = False, backlog: int = BACKLOG) -> EventStream:
        """Return a stream of the events of a node, or of the node and all nodes below it.

            async with zk.events("/a", recursive=True) as events:
                async for event in events:
                    if isinstance(event, zkwire.Resync): ...  # read the nodes again: events may be missing

        The stream begins when the `async with` block is entered.  It gives a WatchEvent for each change, once.  It
        gives a Resync after a reconnect, when events may be missing (the server keeps none for a client that is away),
        and after the beginning of a new session, in which the stream goes on.  To learn of a lost connection at once,
        iterate `states`.
        Arguments: `path`, a node that need not exist; `recursive`, whether to watch all nodes below it too: then events
        are CREATED, DELETED and CHANGED with the path of the node in question, otherwise all four types for `path`
        alone; `backlog`, how many events may wait to be taken: when there are more, all of them are replaced by one
        Resync.
        Raises: ValueError and TypeError at once; UnimplementedError by servers before 3.6, when the block is entered;
        from the iteration, SessionExpiredError (only with `renew=False`) and SessionClosedError when the session is
        over, after the last event.
        Cancellation: a cancelled wait for the next event loses none.  Leaving the block removes the watch from the
        server, unless another watch of this client needs it, without waiting for the answer.
        Order: of the changes; an event is delivered before any reply that shows its change.
        Requests: addWatch, removeWatches.  Servers from 3.6 to 3.8 confuse watches of several kinds on one path
        (ZOOKEEPER-4466): on these, do not set a one-shot watch (`get_and_watch` and the like) on the `path` of a
        stream of events.
        """
        return EventStream(self._requester, path, recursive=recursive, backlog=backlog)

    def data(self, path: str) -> DataStream:
        """Return a stream of the node's data and Stat, now and after each change: `async for node in zk.data("/a")`.

        It gives a Node, or None while the node is absent.  ValueStream says which changes are left out, how to leave
        the stream, what it raises (NoAuthError too) and what cancellation does.
        Requests: getData, exists on an absent node; one at a time, one for each change.
        """
        return DataStream(self._requester, path)

    def children(self, path: str) -> ChildrenStream:
        """Return a stream of the names of the node's children, now and after each change.

        It gives list[str], in no order, or None while the node is absent; otherwise as `data`.
        Requests: getChildren2, exists on an absent node; one at a time, one for each change.
        """
        return ChildrenStream(self._requester, path)
