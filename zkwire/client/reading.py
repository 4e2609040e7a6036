"""The verbs of a Client that read nodes, watch them and follow them."""

from collections.abc import Sequence
from typing import Any, TypeVar, overload

from zkwire.client.event_stream import BACKLOG, EventStream
from zkwire.client.node_streams import ChildrenStream, DataStream
from zkwire.client.operations import GetChildren, GetData, Node, Read, new_node
from zkwire.client.requester import Verbs, results_of, without_frames
from zkwire.client.watch import Watch, WatchSet
from zkwire.errors import NoNodeError, ServerError, ZooKeeperError
from zkwire.wire.multi import MultiReadRequest, batched
from zkwire.wire.records import Stat
from zkwire.wire.requests import ExistsRequest, GetChildren2Request, GetChildrenRequest, GetDataRequest, SyncRequest
from zkwire.wire.watch_table import WatchKind

T = TypeVar("T")


class Reading(Verbs):
    """The verbs of a Client that read."""

    async def exists(self, path: str) -> Stat | None:
        """Return the node's Stat, or None if there is no such node (request: exists).

        Args:
            path: The node.

        Returns:
            The Stat or None.
        """
        try:
            return (await self._ask(ExistsRequest(self._server_path(path), False))).stat
        except NoNodeError:
            return None

    async def exists_and_watch(self, path: str, *, into: WatchSet | None = None) -> tuple[Stat | None, Watch]:
        """Return what `exists` returns, and a watch for the node's creation, its deletion or a change of its data.

        Args:
            path: The node, which may be absent.
            into: A WatchSet to which the watch is added.

        Returns:
            The Stat or None, and the watch.
        """
        request = ExistsRequest(self._server_path(path), True)
        reply, watch = await self._requester.ask_and_watch(request, path, into, WatchKind.EXIST)
        return reply and reply.stat, watch

    async def get(self, path: str) -> Node:
        """Return the node's data and Stat (request: getData).

        Args:
            path: The node.

        Returns:
            A tuple of the data and the Stat.

        Raises:
            NoNodeError: If there is no such node.
        """
        reply = await self._ask(GetDataRequest(self._server_path(path), False))
        return new_node((reply.data or b"", reply.stat))

    async def get_and_watch(self, path: str, *, into: WatchSet | None = None) -> tuple[Node, Watch]:
        """Return what `get` returns, and a watch for a change of the node's data or its deletion.

        Args:
            path: The node.
            into: A WatchSet to which the watch is added.

        Returns:
            The Node and the watch.

        Raises:
            NoNodeError: If there is no such node, and then no watch is left on client or server.
        """
        request = GetDataRequest(self._server_path(path), True)
        reply, watch = await self._requester.ask_and_watch(request, path, into, WatchKind.DATA)
        return new_node((reply.data or b"", reply.stat)), watch

    async def get_children(self, path: str) -> list[str]:
        """Return the names of the children, in no order (request: getChildren).

        Args:
            path: The node.

        Returns:
            The names, without the path of the node.

        Raises:
            NoNodeError: If there is no such node.
        """
        return (await self._ask(GetChildrenRequest(self._server_path(path), False))).children

    async def get_children_and_stat(self, path: str) -> tuple[list[str], Stat]:
        """Return the names of the children, in no order, and the Stat of the node itself (request: getChildren2).

        Args:
            path: The node.

        Returns:
            The names and the Stat.

        Raises:
            NoNodeError: If there is no such node.
        """
        reply = await self._ask(GetChildren2Request(self._server_path(path), False))
        return reply.children, reply.stat

    async def get_children_and_watch(self, path: str, *, into: WatchSet | None = None) -> tuple[list[str], Watch]:
        """Return what `get_children` returns, and a watch for the creation or deletion of a child, or the deletion of
        the node itself.

        Args:
            path: The node.
            into: A WatchSet to which the watch is added.

        Returns:
            The names and the watch.

        Raises:
            NoNodeError: If there is no such node, and then no watch is left on client or server.
        """
        request = GetChildrenRequest(self._server_path(path), True)
        reply, watch = await self._requester.ask_and_watch(request, path, into, WatchKind.CHILD)
        return reply.children, watch

    async def get_children_stat_and_watch(
        self, path: str, *, into: WatchSet | None = None
    ) -> tuple[list[str], Stat, Watch]:
        """Return what `get_children_and_stat` returns, and the watch of `get_children_and_watch`, in one request.

        Args:
            path: The node.
            into: A WatchSet to which the watch is added.

        Returns:
            The names, the Stat and the watch.

        Raises:
            NoNodeError: If there is no such node, and then no watch is left on client or server.
        """
        request = GetChildren2Request(self._server_path(path), True)
        reply, watch = await self._requester.ask_and_watch(request, path, into, WatchKind.CHILD)
        return reply.children, reply.stat, watch

    async def sync(self, path: str) -> None:
        """Make the connected server catch up with everything that the leader has committed (request: sync).

        A read that is sent after it sees the result, and need not wait for the answer of the sync.

        Args:
            path: Any path: the server catches up with all nodes.
        """
        await self._ask(SyncRequest(self._server_path(path)))

    @overload
    async def get_many(self, reads: Sequence[Read[T]]) -> list[T | ServerError]: ...

    @overload
    async def get_many(self, reads: Sequence[Read[Any]]) -> list[Any]: ...

    async def get_many(self, reads: Sequence[Read[Any]]) -> list[Any]:
        """Read data and children of many nodes in one round trip (request: multiRead, ZooKeeper 3.6).

        No write happens between the reads of one request.  Reads that are too many for one request (a megabyte of
        paths) are sent in several requests.

        Args:
            reads: GetData and GetChildren operations, without watches.

        Returns:
            One result for each read, in their order: the Node or the names, or the ServerError that `get` or
            `get_children` would raise.

        Raises:
            UnimplementedError: If the server is older; it also closes the connection: use `pipeline` there.
            ProtocolError: If the answer is larger than the `reply_limit` of `connect`, 64 MiB.
        """
        for read in reads:
            if not isinstance(read, GetData | GetChildren):
                raise TypeError(f"get_many takes GetData and GetChildren, not {read!r}")
            if read.into is not None:
                raise ValueError(f"{read.path}: get_many sets no watches; leave `into` out, or use pipeline")
        requests = [self._requester.request_of(read)[0] for read in reads]
        batches = batched(requests, self._requester.body_limit)
        asked = [(MultiReadRequest(each), None, WatchKind.DATA) for each in batches]
        replies = await without_frames(self._requester.ask_all(asked))
        answers: list[Any] = []
        for batch, reply in zip(batches, replies, strict=True):
            if isinstance(reply, ZooKeeperError):
                raise reply
            answers += results_of(self._requester, reply, batch)
        return list(map(self._requester.result_of, reads, answers))

    def events(self, path: str, *, recursive: bool = False, backlog: int = BACKLOG) -> EventStream:
        """Return a stream of the events of a node, or of the node and all nodes below it.

        For example::

            async with zk.events("/a", recursive=True) as events:
                async for event in events:
                    if isinstance(event, zkwire.Resync): ...  # read the nodes again: events may be missing

        The stream begins when the ``async with`` block is entered.  It gives a WatchEvent for each change, once.  It
        gives a Resync after a reconnect, when events may be missing (the server keeps none for a client that is away),
        and after the beginning of a new session, in which the stream goes on.  To learn of a lost connection at once,
        iterate `states`.

        Args:
            path: A node that need not exist.
            recursive: Whether to watch all nodes below it too: then events are CREATED, DELETED and CHANGED with the
                path of the node in question, otherwise all four types for `path` alone.
            backlog: How many events may wait to be taken: when there are more, all of them are replaced by one Resync.

        Returns:
            The stream.

        Raises:
            ValueError: At once, if an argument is bad.
            TypeError: At once, if an argument is bad.
            UnimplementedError: When the block is entered, if the server is older than 3.6.
            SessionExpiredError: From the iteration after the last event, with ``renew=False``.
            SessionClosedError: From the iteration after the last event, when the client was closed.

        Cancellation:
            A cancelled wait for the next event loses none.  Leaving the block removes the watch from the server, unless
            another watch of this client needs it, without waiting for the answer.

        Order:
            The order of the changes; an event is delivered before any reply that shows its change.

        Requests:
            addWatch, removeWatches.  Servers from 3.6 to 3.8 confuse watches of several kinds on one path
            (ZOOKEEPER-4466): on these, do not set a one-shot watch (`get_and_watch` and the like) on the `path` of a
            stream of events.
        """
        return EventStream(self.unlimited._requester, path, recursive=recursive, backlog=backlog)

    def data(self, path: str) -> DataStream:
        """Return a stream of the node's data and Stat, now and after each change: ``async for node in zk.data("/a")``.

        It gives a Node, or None while the node is absent.  ValueStream says which changes are left out, how to leave
        the stream, what it raises (NoAuthError too) and what cancellation does.

        Args:
            path: A node that need not exist.

        Returns:
            The stream.

        Requests:
            getData, exists on an absent node; one at a time, one for each change.
        """
        return DataStream(self.unlimited._requester, path)

    def children(self, path: str) -> ChildrenStream:
        """Return a stream of the names of the node's children, now and after each change.

        It gives list[str], in no order, or None while the node is absent; otherwise as `data`.

        Args:
            path: A node that need not exist.

        Returns:
            The stream.

        Requests:
            getChildren2, exists on an absent node; one at a time, one for each change.
        """
        return ChildrenStream(self.unlimited._requester, path)
