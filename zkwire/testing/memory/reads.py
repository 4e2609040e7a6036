"""What each request that changes no node does and answers.

Every function takes the state, the connection and the decoded request, and returns the body of the reply.
Raises: Refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from zkwire.errors import BadArgumentsError, MarshallingError, NoAuthError, NoNodeError, NoWatcherError
from zkwire.testing.memory import access
from zkwire.testing.memory.refusal import Refused
from zkwire.testing.memory.state import (
    NO_ZXID,
    NODE_CHILDREN_CHANGED,
    NODE_CREATED,
    NODE_DATA_CHANGED,
    NODE_DELETED,
    Connection,
    State,
    encode_text,
)
from zkwire.testing.memory.tree import Node
from zkwire.testing.memory.watch_manager import ONE_SHOT
from zkwire.wire.jute import Record
from zkwire.wire.multi import ErrorResult, MultiReadRequest, MultiReply
from zkwire.wire.primitives import INT, encode_buffer
from zkwire.wire.records import Perms
from zkwire.wire.requests import (
    AddWatchMode,
    AddWatchReply,
    AddWatchRequest,
    CheckWatchesRequest,
    ExistsRequest,
    GetACLRequest,
    GetAllChildrenNumberRequest,
    GetChildren2Request,
    GetChildrenReply,
    GetChildrenRequest,
    GetDataReply,
    GetDataRequest,
    GetEphemeralsReply,
    GetEphemeralsRequest,
    RemoveWatchesRequest,
    SetWatches2Request,
    SetWatchesRequest,
    SyncRequest,
    WatcherType,
    WhoAmIRequest,
)

_ERROR_TYPE: Final = -1
_BLANK: Final = "".join(map(chr, range(0x21)))  # the characters that String.trim of Java removes


def _readable(state: State, connection: Connection, path: str, perms: int = Perms.READ) -> Node:
    node = state.tree.nodes.get(path)
    if node is None:
        raise Refused(MarshallingError if path is None else NoNodeError)
    if not access.is_allowed(node.acl, perms, connection.identities):
        raise Refused(NoAuthError)
    return node


def exists(state: State, connection: Connection, request: ExistsRequest) -> bytes:
    """Return the Stat; a watch is also set when the node is missing."""
    path = request.path
    if path is None:
        raise Refused(MarshallingError)
    if "\0" in path:
        raise Refused(BadArgumentsError)
    node = state.tree.nodes.get(path)
    if node is not None and not access.is_allowed(node.acl, Perms.READ, connection.identities):
        raise Refused(NoAuthError)
    if request.watch:
        state.watches.data.add(path, connection, ONE_SHOT)
    if node is None:
        raise Refused(NoNodeError)
    return node.stat()


def get_data(state: State, connection: Connection, request: GetDataRequest) -> bytes:
    """Return the data and the Stat of a node."""
    node = _readable(state, connection, request.path)
    if request.watch:
        state.watches.data.add(request.path, connection, ONE_SHOT)
    return encode_buffer(node.data) + node.stat()


def get_children(state: State, connection: Connection, request: GetChildrenRequest | GetChildren2Request) -> bytes:
    """Return the names of the children."""
    node = _readable(state, connection, request.path)
    if request.watch:
        state.watches.child.add(request.path, connection, ONE_SHOT)
    return GetChildrenReply(node.names()).encode()


def get_children2(state: State, connection: Connection, request: GetChildren2Request) -> bytes:
    """Return the names of the children, and the Stat of the node."""
    names = get_children(state, connection, request)
    return names + state.tree.nodes[request.path].stat()


def get_acl(state: State, connection: Connection, request: GetACLRequest) -> bytes:
    """Return the ACL and the Stat; only a client that may administer the node sees the hashes of passwords."""
    node = _readable(state, connection, request.path, Perms.READ | Perms.ADMIN)
    is_admin = access.is_allowed(node.acl, Perms.ADMIN, connection.identities)
    shown = node.acl if is_admin else access.masked(node.acl)
    entries = [INT.pack(entry.perms) + encode_text(entry.scheme) + encode_text(entry.id) for entry in shown]
    return INT.pack(len(entries)) + b"".join(entries) + node.stat()


def get_all_children_number(state: State, connection: Connection, request: GetAllChildrenNumberRequest) -> bytes:
    """Return how many nodes are below a node."""
    _readable(state, connection, request.path)
    return INT.pack(state.tree.descendants(request.path))


def get_ephemerals(state: State, connection: Connection, request: GetEphemeralsRequest) -> bytes:
    """Return the paths of the session's own ephemeral nodes that begin with the prefix."""
    assert connection.session is not None
    owned = list(state.tree.ephemerals.get(connection.session.id, ()))
    prefix = request.prefix
    if prefix is not None and prefix.strip(_BLANK) not in ("", "/"):
        owned = [path for path in owned if path.startswith(prefix)]
    return GetEphemeralsReply(owned).encode()


def sync(state: State, connection: Connection, request: SyncRequest) -> bytes:
    """Return the path of the request: a server without followers has nothing to wait for."""
    return encode_text(request.path)


def who_am_i(state: State, connection: Connection, request: WhoAmIRequest) -> bytes:
    """Return the identities of the connection."""
    who = [encode_text(identity.scheme) + encode_text(identity.user) for identity in connection.identities]
    return INT.pack(len(who)) + b"".join(who)


def nothing(state: State, connection: Connection, request: Record) -> bytes:
    """Return an empty body, for a ping."""
    return b""


# -- watches ------------------------------------------------------------------------------------------


def add_watch(state: State, connection: Connection, request: AddWatchRequest) -> bytes:
    """Set a persistent watch; the node need not exist."""
    if request.mode == AddWatchMode.PERSISTENT:
        state.watches.add_persistent(request.path, connection)
    elif request.mode == AddWatchMode.PERSISTENT_RECURSIVE:
        state.watches.add_recursive(request.path, connection)
    else:
        raise Refused(MarshallingError)
    return AddWatchReply(0).encode()


def _watcher_type(number: int) -> WatcherType:
    try:
        return WatcherType(number)
    except ValueError:
        raise Refused(MarshallingError) from None


def check_watches(state: State, connection: Connection, request: CheckWatchesRequest) -> bytes:
    """Refuse unless the connection has such a watch."""
    if not state.watches.has(request.path, connection, _watcher_type(request.type)):
        raise Refused(NoWatcherError)
    return b""


def remove_watches(state: State, connection: Connection, request: RemoveWatchesRequest) -> bytes:
    """Remove the watches of that kind that the connection has."""
    if not state.watches.remove(request.path, connection, _watcher_type(request.type)):
        raise Refused(NoWatcherError)
    return b""


def set_watches(state: State, connection: Connection, request: SetWatchesRequest | SetWatches2Request) -> bytes:
    """Set each watch again, or send the event that it has missed; the real server checks no ACLs here."""
    nodes, watches, since = state.tree.nodes, state.watches, request.relative_zxid
    for path in request.data:
        node = nodes.get(path)
        if node is None:
            state.notify(connection, NODE_DELETED, path, NO_ZXID)
        elif node.mzxid > since:
            state.notify(connection, NODE_DATA_CHANGED, path, NO_ZXID)
        else:
            watches.data.add(path, connection, ONE_SHOT)
    for path in request.exist:
        if path in nodes:
            state.notify(connection, NODE_CREATED, path, NO_ZXID)
        else:
            watches.data.add(path, connection, ONE_SHOT)
    for path in request.child:
        node = nodes.get(path)
        if node is None:
            state.notify(connection, NODE_DELETED, path, NO_ZXID)
        elif node.pzxid > since:
            state.notify(connection, NODE_CHILDREN_CHANGED, path, NO_ZXID)
        else:
            watches.child.add(path, connection, ONE_SHOT)
    if isinstance(request, SetWatches2Request):
        for path in request.persistent:
            watches.add_persistent(path, connection)
        for path in request.persistent_recursive:
            watches.add_recursive(path, connection)
    return b""


# -- several reads in one -----------------------------------------------------------------------------


def multi_read(state: State, connection: Connection, request: MultiReadRequest) -> bytes:
    """Return the result or the error of each read, in the order of the reads; watch flags are ignored."""
    results: list[Record] = []
    types: list[int] = []
    for read in request.operations:
        if not isinstance(read, GetDataRequest | GetChildrenRequest):
            raise Refused(MarshallingError, MultiReply([]).encode())
        answer: Callable[[State, Connection, Any], bytes] = get_data
        kind: type[Record] = GetDataReply
        if isinstance(read, GetChildrenRequest):
            answer, kind = get_children, GetChildrenReply
        read.watch = False
        try:
            body = answer(state, connection, read)
        except Refused as refused:
            if refused.code == MarshallingError.code:
                # A path is null: the real server stops here, and sends the results so far.
                raise Refused(MarshallingError, MultiReply(results, types).encode()) from None
            results.append(ErrorResult(refused.code))
            types.append(_ERROR_TYPE)
            continue
        results.append(kind.decode(body, 0)[0])
        types.append(read.opcode)
    return MultiReply(results, types).encode()
