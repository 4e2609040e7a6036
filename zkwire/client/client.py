"""The client: ZooKeeper's verbs on a session.

Knows the caller's side of things: paths below the chroot, arguments and their checks, the shape of what is returned.
How a request travels and what a reconnect means is the session's affair.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final, TypeVar

from zkwire import paths
from zkwire.client.admin import Administration
from zkwire.client.arguments import checked_data, checked_version, creation, with_stat
from zkwire.client.delete_tree import delete_tree
from zkwire.client.event_stream import BACKLOG, EventStream
from zkwire.client.node_streams import ChildrenStream, DataStream
from zkwire.client.operations import GetChildren, GetData, Node, Operation
from zkwire.client.requester import Requester
from zkwire.client.state_stream import StateStream
from zkwire.client.transaction import Transaction
from zkwire.client.watch import Watch, WatchSet
from zkwire.errors import NoNodeError, SessionExpiredError
from zkwire.session import credentials, hosts
from zkwire.session.cleanup import Removal
from zkwire.session.session import Session
from zkwire.session.states import SessionState
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


class Client(Administration):
    """A ZooKeeper client; made by `zkwire.connect`, not directly.

    Every verb is one request, sent in the order of the calls and answered in that order; verbs may be pipelined with
    asyncio.gather or tasks, and those started in one turn of the loop leave in one write.

    Raises, every verb: ServerError's subclasses when the server refuses; ConnectionLostError when a write's answer is
    lost (reads are repeated on the next connection); SessionExpiredError and SessionClosedError when the session is
    over; ValueError or TypeError for bad arguments, before anything is sent. While no server is connected, verbs wait
    for the next one: bound them with asyncio.timeout.

    Cancellation, every verb: what was not yet written is not sent; a node that a cancelled create has made is removed.
    A cancelled write of another kind may have happened.

    `doubts` is where to be told when the session does not live for certain any more; see OnUncertain.  `ending` is
    where
    to be told that it is over for good; see OnClosed.
    """

    def __init__(self, session: Session, chroot: str, rng: random.Random) -> None:
        self._session = session
        self._loop = asyncio.get_running_loop()
        self.on_uncertain = session.certainty.on_uncertain
        self.on_closed = session.on_closed
        self._requester = Requester(session, chroot)
        self._ask = self._requester.ask
        self._server_path = self._requester.server_path
        self._random = rng

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # -- the session ------------------------------------------------------------------------------------------------

    @property
    def session_id(self) -> int:
        """The session's id, 0 while there is none; print it as hexadecimal, as the server does."""
        return self._session.id

    @property
    def session_password(self) -> bytes:
        """What `connect` wants, beside the id, to resume the session."""
        return self._session.password

    @property
    def session_timeout(self) -> float:
        """The negotiated timeout, in seconds."""
        return self._session.timeout

    @property
    def state(self) -> SessionState:
        """Where the session stands now."""
        return self._session.states.now

    @property
    def server(self) -> str:
        """The server connected to, or the last one tried, as "host:port"."""
        return self._session.server

    @property
    def last_zxid(self) -> int:
        """The newest transaction id that a reply of this session has shown."""
        return self._session.requests.last_zxid

    @property
    def chroot(self) -> str:
        """The path below which this client lives, "" for none."""
        return self._requester.chroot

    @property
    def certain_until(self) -> float:
        """The moment, on the loop's clock, before which the session cannot have expired; minus infinity once it has.

        Three quarters of the timeout behind the sending of the last request that was answered; see zkwire.wire.timing.
        """
        return self._session.certainty.until

    def need_certainty(self) -> None:
        """Have this session kept certain from now on, until `release_certainty` was called as often.

        For recipes: a lock needs it for as long as it is held, and while it waits and may become the owner by an event
        alone.  Meanwhile the pings are syncs through the leader, one for each eighth of the session timeout.
        """
        self._session.proving.need()

    def release_certainty(self) -> None:
        """Undo one `need_certainty`."""
        self._session.proving.release()

    async def certify(self) -> None:
        """Return once the session is certain to live, at once if it is.

        Raises: SessionError; NotReadOnlyError when connected to a server that has lost its quorum.
        Cancellation: harmless.
        Requests: none if it is certain; one sync if a write was answered just before.
        """
        await self._session.proving.certify()

    def certain_for(self, session_id: int) -> float:
        """Return for how many seconds from now `session_id` is this client's session and lives for certain, or 0."""
        session = self._session
        return max(0.0, session.certainty.until - self._loop.time()) if session_id == session.id else 0.0

    def states(self) -> StateStream:
        """Return the state now and every later one, to be iterated: `async for state in zk.states()`."""
        return StateStream(self._session.states)

    def unique_id(self) -> str:
        """Return a fresh UUID, from this client's own source of randomness."""
        bits = (
            self._random.getrandbits(128) & ~(0xF << 76) & ~(0x3 << 62) | 0x4 << 76 | 0x2 << 62
        )  # RFC 4122, version 4
        digits = f"{bits:032x}"
        return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))

    async def close(self, *, keep_session: bool = False) -> None:
        """End the session, so that its ephemeral nodes go at once, and the connection; a second call waits for the
        first.

        Arguments: `keep_session`, whether the session is to live on, to be resumed by its id and password.
        Cancellation: closes all the same; the session may then live until it expires.
        Order: verbs called before are answered first, if a server is connected.
        """
        await self._session.close(keep_session=keep_session)

    async def ping(self) -> float:
        """Return how many seconds a ping took; the session is kept alive without it (request: ping)."""
        loop = asyncio.get_running_loop()
        start = loop.time()
        await self._ask(PingRequest())
        return loop.time() - start

    # -- identity and servers ---------------------------------------------------------------------------------------

    async def add_auth(self, scheme: str, data: bytes) -> None:
        """Add an identity to those that the client has, on this connection and on every later one (request: auth).

        Arguments: `scheme` and `data` as the server's plug-ins want them: "digest" takes b"user:password", and
        accepts every one.  It is remembered, and shown first of all on each new connection.
        Raises: AuthFailedError when the server refuses it, and then the whole session is over: the state is
        AUTH_FAILED, whatever waits fails with the same error, and the ephemeral nodes stay until the session has
        expired.  So it is when a later server refuses it.  TypeError, ValueError.
        Cancellation: what was not yet written is forgotten; what was stays remembered.
        Order: requests sent behind it, awaited or not, have the identity; while there is no connection it is ahead of
        all that waits.
        """
        await self._session.add_auth(*credentials.checked(scheme, data))

    def set_hosts(self, connect_string: str) -> None:
        """Replace the list of servers: "host[:port],..."; the client moves at once where that is needed.

        It leaves a server that is no longer listed, and with some probability one that is, so that many clients told
        the same end up spread evenly over the servers, no more of them moving than need be.  A move is a reconnect: the
        session lives on, requests that are under way are answered first, those that wait are sent to the new server.
        Names are compared as they are written.
        Arguments: `connect_string`, as for `connect`; its chroot, if there is one, must be this client's.
        Raises: TypeError, ValueError.
        """
        addresses, chroot = hosts.parse(connect_string)
        if chroot and chroot != self.chroot:
            raise ValueError(f"{connect_string!r} has another chroot than this client, which has {self.chroot!r}")
        self._session.set_hosts(addresses)

    # -- reading ----------------------------------------------------------------------------------------------------

    async def exists(self, path: str) -> Stat | None:
        """Return the node's Stat, None if there is no such node (request: exists)."""
        try:
            return (await self._ask(ExistsRequest(self._server_path(path), False))).stat
        except NoNodeError:
            return None

    async def exists_and_watch(self, path: str, *, into: WatchSet | None = None) -> tuple[Stat | None, Watch]:
        """Return the Stat, None if there is no such node, and a watch for its creation, deletion or change of data.

        Arguments: `into`, a WatchSet that the watch is to belong to.
        """
        watch = self._requester.watch(path, into)
        try:
            reply = await self._ask(ExistsRequest(self._server_path(path), True), watch, WatchKind.EXIST)
        except NoNodeError:
            return None, watch
        except BaseException:
            watch.cancel()
            raise
        return reply.stat, watch

    async def get(self, path: str) -> Node:
        """Return the node's data and Stat (request: getData).  Raises: NoNodeError."""
        reply = await self._ask(GetDataRequest(self._server_path(path), False))
        return Node(reply.data or b"", reply.stat)

    async def get_and_watch(self, path: str, *, into: WatchSet | None = None) -> tuple[Node, Watch]:
        """Return the node and a watch for its change of data or deletion.

        Arguments: `into`, a WatchSet that the watch is to belong to.
        Raises: NoNodeError, and then no watch is left anywhere.
        """
        watch = self._requester.watch(path, into)
        try:
            reply = await self._ask(GetDataRequest(self._server_path(path), True), watch, WatchKind.DATA)
        except BaseException:
            watch.cancel()
            raise
        return Node(reply.data or b"", reply.stat), watch

    async def get_children(self, path: str) -> list[str]:
        """Return the names of the children, in no order (request: getChildren).  Raises: NoNodeError."""
        return (await self._ask(GetChildrenRequest(self._server_path(path), False))).children

    async def get_children_and_stat(self, path: str) -> tuple[list[str], Stat]:
        """Return the names of the children, in no order, and the node's own Stat (request: getChildren2)."""
        reply = await self._ask(GetChildren2Request(self._server_path(path), False))
        return reply.children, reply.stat

    async def get_children_and_watch(self, path: str, *, into: WatchSet | None = None) -> tuple[list[str], Watch]:
        """Return the names of the children, in no order, and a watch for a child's creation or deletion, or the
        node's own deletion.

        Arguments: `into`, a WatchSet that the watch is to belong to.
        Raises: NoNodeError, and then no watch is left anywhere.
        """
        watch = self._requester.watch(path, into)
        try:
            reply = await self._ask(GetChildrenRequest(self._server_path(path), True), watch, WatchKind.CHILD)
        except BaseException:
            watch.cancel()
            raise
        return reply.children, watch

    async def get_many(self, reads: Sequence[GetData | GetChildren]) -> list[Any]:
        """Read data and children of many nodes in one round trip (request: multiRead, ZooKeeper 3.6).

        Returns, for each read and in their order, the Node or the names, or the ServerError that `get` or
        `get_children` would raise.  No write comes between those of one request; what is too large for one (a megabyte
        of paths) goes in several.
        Raises: UnimplementedError by an older server, which closes the connection too: use `pipeline` there;
        ProtocolError when the answer is larger than 64 MiB.
        """
        return await self._requester.get_many(reads)

    async def sync(self, path: str) -> None:
        """Have the connected server catch up with all that the leader has committed, before later reads (request:
        sync).

        A read that is sent behind it need not wait for its answer.
        """
        await self._ask(SyncRequest(self._server_path(path)))

    # -- writing ----------------------------------------------------------------------------------------------------

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        container: bool = False,
        ttl: float | None = None,
        acl: Sequence[ACL] = OPEN_ACL,
        make_parents: bool = False,
    ) -> str:
        """Create a node and return its path, with the number that the server appended to a sequential one.

        Arguments: `ephemeral`, it goes with this session; `sequential`, a number of ten digits is appended that only
        grows below one parent; `container`, the server deletes it some time after its last child is gone; `ttl`, in
        seconds, the server deletes it once it has no children and has not been set for so long (it looks every minute,
        unless told otherwise); `make_parents`, missing parents are made, persistent, with the same ACL.
        Requests: create, createContainer (ZooKeeper 3.5.1), createTTL (3.5.3).
        Raises: NodeExistsError, NoNodeError without a parent, NoChildrenForEphemeralsError, InvalidACLError,
        UnimplementedError by a server that has TTL nodes switched off, as they are by default.
        """
        request: Request[Any] = creation(
            self.chroot, path, data, ephemeral=ephemeral, sequential=sequential, container=container, ttl=ttl, acl=acl
        )
        return paths.strip_chroot(self.chroot, (await self._requester.create(request, make_parents, acl)).path)

    async def create_and_stat(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        container: bool = False,
        ttl: float | None = None,
        acl: Sequence[ACL] = OPEN_ACL,
        make_parents: bool = False,
    ) -> tuple[str, Stat]:
        """Create a node and return its path and Stat, in one round trip; otherwise as `create`.

        Requests: create2 (ZooKeeper 3.5), createContainer, createTTL.
        """
        request = creation(
            self.chroot, path, data, ephemeral=ephemeral, sequential=sequential, container=container, ttl=ttl, acl=acl
        )
        reply = await self._requester.create(with_stat(request), make_parents, acl)
        return paths.strip_chroot(self.chroot, reply.path), reply.stat

    async def ensure_path(self, path: str, *, container: bool = False, acl: Sequence[ACL] = OPEN_ACL) -> None:
        """Make the node and every missing one above it, the chroot included; those that are there stay as they are.

        Arguments: `container`, whether the node itself, if missing, is to be a container; those above are persistent.
        Order: all creates leave together, so that what is sent behind them finds the path.
        Cancellation: what it has made stays.
        """
        await self._requester.ensure(self._server_path(path), container=container, acl=acl)

    async def set(self, path: str, data: bytes, version: int = _ANY_VERSION) -> Stat:
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
        """Delete the node and all that is below it (requests: getChildren, multi, delete).

        It is no transaction: others may see a part of it gone.  What they create and delete meanwhile does not matter,
        unless they do not stop creating.  Another node that takes the place of the deleted one is left alone.
        Raises: NoNodeError if there is none at first; NotEmptyError when it cannot keep up with the creating;
        NoAuthError, with a part of it gone; ValueError for the root and /zookeeper, which no server deletes.
        Cancellation: leaves what is not yet deleted.
        """
        await delete_tree(self._requester, path)

    def discard(self, path: str, *, newest_zxid: int | None = None) -> asyncio.Future[None]:
        """Delete the node again and again, over lost connections, until it is known to be gone or the session is.

        The first request is sent in the order of the calls, and at once.  The future that is returned need not be
        awaited, and never fails: a node that cannot be deleted is logged.
        Arguments: `newest_zxid`, the latest transaction that can have created the node, for a path at which somebody
        else may create one: when the answer to a delete is lost, a node that is newer is left alone.
        """
        return self.removal(path, newest_zxid=newest_zxid).start()

    def removal(self, path: str, *, newest_zxid: int | None = None) -> Removal:
        """Prepare a `discard`, so that its `start()` is no more than a write."""
        return self._session.requests.cleanup.removal(self._server_path(path), newest_zxid)

    def transaction(self, *, session_id: int | None = None) -> Transaction:
        """Return a new transaction; `async with zk.transaction() as tx` commits at the end (request: multi).

        Arguments: `session_id`, the only session in which it may be carried out: when that is over, the commit raises
        SessionExpiredError and nothing has happened, even if another session has followed.
        """

        async def commit(request: MultiRequest) -> MultiReply:
            if session_id is not None and self.session_id != session_id:
                raise SessionExpiredError(f"the session {session_id % 2**64:#x} of this transaction is over")
            return await self._ask(request)

        return Transaction(commit, self.chroot, self._requester.refusal)

    async def pipeline(self, operations: Sequence[Operation]) -> list[Any]:
        """Send the operations in one write and return what each gave, in their order, once all are answered.

        They are executed in their order but, unlike a transaction's, each for itself; and others' may come between.
        Returns, for each operation, what its verb returns (a watch is only in its WatchSet), or the ServerError or
        ConnectionLostError that its verb would raise.
        Raises: SessionError; ValueError and TypeError before anything is sent.
        Cancellation: of each as of its verb.
        """
        return await self._requester.pipeline(operations)

    # -- following ----------------------------------------------------------------------------------------------------

    def events(self, path: str, *, recursive: bool = False, backlog: int = BACKLOG) -> EventStream:
        """Return the events of a node, or of all below it as well, from the moment in which the stream is entered.

            async with zk.events("/a", recursive=True) as events:
                async for event in events:
                    if isinstance(event, zkwire.Resync): ...  # read again what you keep of the nodes

        Arguments: `path`, a node that need not exist; `recursive`, whether to watch all below it too: then events are
        CREATED, DELETED and CHANGED with the path of the node in question, otherwise all four types of `path` alone;
        `backlog`, how many events may wait to be taken: when there are more, all are given up for one Resync.
        Gives WatchEvent, each change once; Resync after a reconnect, when events may be missing (the server keeps none
        for those who are away), and after the beginning of a new session, in which the stream goes on.  To learn of
        the loss as it happens, iterate `states`.
        Raises, when it is entered: UnimplementedError by servers before 3.6; ValueError and TypeError at once.  From
        the iteration: SessionExpiredError (only with `renew=False`) and SessionClosedError when the session is over,
        behind the last event.
        Cancellation: leaving the block removes the watch from the server, unless others of this client need it;
        nothing waits for an answer.  A cancelled wait for the next event loses none.
        Order: of the changes; an event is there before any reply that shows its change.  Requests: addWatch,
        removeWatches.  Servers from 3.6 to 3.8 confuse watches of several kinds on one path (ZOOKEEPER-4466): there,
        do not watch by `get_and_watch` and its like what is also the `path` of events.
        """
        return EventStream(self._requester, path, recursive=recursive, backlog=backlog)

    def data(self, path: str) -> DataStream:
        """Return the node's data and Stat, now and after each change: `async for node in zk.data("/a")`.

        Gives a Node, None while the node is absent.  Of changes in quick succession some may be left out, the last one
        never; a reconnect, or a new session after an expiry, is not noticed.
        Raises, from the iteration: SessionExpiredError (only with `renew=False`), SessionClosedError; NoAuthError,
        after which the iteration may be taken up again.
        Cancellation: of the wait for the next state removes the watch from the server; the iteration may be taken up
        again.  Leave a loop by `break` as you like: the watch goes with the stream.  Who keeps the stream in a variable
        closes it, by `close()` or by `async with zk.data("/a") as nodes`.
        Order: of the changes.  Requests: getData, exists on an absent node; one at a time, for each change one.
        """
        return DataStream(self._requester, path)

    def children(self, path: str) -> ChildrenStream:
        """Return the names of the node's children, in no order, now and after each change.

        Gives list[str], None while the node is absent; otherwise as `data`.  Requests: getChildren2, exists.
        """
        return ChildrenStream(self._requester, path)
