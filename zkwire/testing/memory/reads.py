"""What each request that changes no node does and answers.

Every function takes the state, the connection and the decoded request, and returns the body of the reply.  It raises
Refused if the request is answered with an error.
"""

from typing import Final

from zkwire.errors import BadArgumentsError, MarshallingError, NoWatcherError
from zkwire.testing.memory import access
from zkwire.testing.memory.refusal import Refused
from zkwire.testing.memory.state import NO_ZXID, ServerConnection, State
from zkwire.testing.memory.tree import Node
from zkwire.testing.memory.watch_manager import CHILD, DATA, KINDS, PERSISTENT, RECURSIVE
from zkwire.wire import requests
from zkwire.wire.jute import Record
from zkwire.wire.multi import ErrorResult, MultiReadRequest, MultiReply
from zkwire.wire.primitives import INT, encode_buffer
from zkwire.wire.records import Perms
from zkwire.wire.watch_table import WatchEventType

_ERROR_TYPE: Final = -1
_BLANK: Final = "".join(map(chr, range(0x21)))  # the characters that String.trim of Java removes
_ADDED: Final[dict[int, int]] = {
    requests.AddWatchMode.PERSISTENT: PERSISTENT,
    requests.AddWatchMode.PERSISTENT_RECURSIVE: RECURSIVE,
}


def exists(state: State, connection: ServerConnection, request: requests.ExistsRequest) -> bytes:
    """Return the Stat; a watch is also set when the node is missing."""
    path = request.path
    if path is not None and "\0" in path:
        raise Refused(BadArgumentsError)
    if path is None or path in state.tree.nodes:
        state.allowed(connection, path, Perms.READ)  # a refused request sets no watch
    if request.watch:
        state.watches.add(path, connection, DATA)
    return state.allowed(connection, path, Perms.READ).stat()


def get_data(state: State, connection: ServerConnection, request: requests.GetDataRequest) -> bytes:
    """Return the data and the Stat of a node."""
    node = state.allowed(connection, request.path, Perms.READ)
    if request.watch:
        state.watches.add(request.path, connection, DATA)
    return encode_buffer(node.data) + node.stat()


def get_children(
    state: State, connection: ServerConnection, request: requests.GetChildrenRequest | requests.GetChildren2Request
) -> bytes:
    """Return the names of the children, and for getChildren2 the Stat of the node."""
    node = state.allowed(connection, request.path, Perms.READ)
    if request.watch:
        state.watches.add(request.path, connection, CHILD)
    names = requests.GetChildrenReply(node.names()).encode()
    return names + node.stat() if isinstance(request, requests.GetChildren2Request) else names


def get_acl(state: State, connection: ServerConnection, request: requests.GetACLRequest) -> bytes:
    """Return the ACL and the Stat; only a client that may administer the node sees the hashes of passwords."""
    node = state.allowed(connection, request.path, Perms.READ | Perms.ADMIN)
    is_admin = access.is_allowed(node.acl, Perms.ADMIN, connection.identities)
    shown = node.acl if is_admin else access.masked(node.acl)
    return INT.pack(len(shown)) + b"".join(entry.encode() for entry in shown) + node.stat()


def get_all_children_number(
    state: State, connection: ServerConnection, request: requests.GetAllChildrenNumberRequest
) -> bytes:
    """Return how many nodes are below a node."""
    state.allowed(connection, request.path, Perms.READ)
    return INT.pack(state.tree.descendants(request.path))


def get_ephemerals(state: State, connection: ServerConnection, request: requests.GetEphemeralsRequest) -> bytes:
    """Return the paths of the session's own ephemeral nodes that begin with the prefix."""
    assert connection.session is not None
    owned = state.tree.ephemerals(connection.session.id)
    prefix = request.prefix
    if prefix is not None and prefix.strip(_BLANK) not in ("", "/"):
        owned = [path for path in owned if path.startswith(prefix)]
    return requests.GetEphemeralsReply(owned).encode()


def echo(state: State, connection: ServerConnection, request: requests.SyncRequest | requests.PingRequest) -> bytes:
    """Return the body of the request: the path of a sync, for which a server without followers need not wait."""
    return request.encode()


def who_am_i(state: State, connection: ServerConnection, request: requests.WhoAmIRequest) -> bytes:
    """Return the identities of the connection."""
    known = [requests.ClientInfoRecord(identity.scheme, identity.user) for identity in connection.identities]
    return requests.WhoAmIReply(known).encode()


# -- watches ------------------------------------------------------------------------------------------


def add_watch(state: State, connection: ServerConnection, request: requests.AddWatchRequest) -> bytes:
    """Set a persistent watch; the node need not exist."""
    state.watches.add(request.path, connection, _kinds(_ADDED, request.mode))
    return requests.AddWatchReply(0).encode()


def find_watches(
    state: State, connection: ServerConnection, request: requests.CheckWatchesRequest | requests.RemoveWatchesRequest
) -> bytes:
    """Refuse unless the connection has watches of that kind, and remove them if the request says so."""
    act = state.watches.has if isinstance(request, requests.CheckWatchesRequest) else state.watches.remove
    if not act(request.path, connection, _kinds(KINDS, request.type)):
        raise Refused(NoWatcherError)
    return b""


def _kinds(known: dict[int, int], number: int) -> int:
    if number not in known:
        raise Refused(MarshallingError)
    return known[number]


def set_watches(
    state: State, connection: ServerConnection, request: requests.SetWatchesRequest | requests.SetWatches2Request
) -> bytes:
    """Set each watch again, or send the event that it has missed; the real server checks no ACLs here."""
    since = request.relative_zxid
    for paths, event, kind in (
        (request.data, WatchEventType.CHANGED, DATA),
        (request.exist, WatchEventType.CREATED, DATA),
        (request.child, WatchEventType.CHILDREN, CHILD),
    ):
        for path in paths:
            missed = _missed(state.tree.nodes.get(path), event, since)
            if missed:
                state.notify(connection, missed, path, NO_ZXID)
            else:
                state.watches.add(path, connection, kind)
    if isinstance(request, requests.SetWatches2Request):
        for paths, kind in ((request.persistent, PERSISTENT), (request.persistent_recursive, RECURSIVE)):
            for path in paths:
                state.watches.add(path, connection, kind)
    return b""


def _missed(node: Node | None, event: int, since: int) -> int:
    """Return the event that a watch waiting for `event` has missed since the zxid `since`, 0 if none."""
    if event == WatchEventType.CREATED:
        return 0 if node is None else WatchEventType.CREATED
    if node is None:
        return WatchEventType.DELETED
    return event if (node.mzxid if event == WatchEventType.CHANGED else node.pzxid) > since else 0


# -- several reads in one -----------------------------------------------------------------------------


def multi_read(state: State, connection: ServerConnection, request: MultiReadRequest) -> bytes:
    """Return the result or the error of each read, in the order of the reads; watch flags are ignored."""
    results: list[Record] = []
    types: list[int] = []
    for read in request.operations:
        if not isinstance(read, requests.GetDataRequest | requests.GetChildrenRequest):
            raise Refused(MarshallingError, MultiReply([]).encode())
        read.watch = False
        try:
            if isinstance(read, requests.GetDataRequest):
                body = get_data(state, connection, read)
            else:
                body = get_children(state, connection, read)
        except Refused as refused:
            if refused.code == MarshallingError.code:
                # A path is null: the real server stops here, and sends the results so far.
                raise Refused(MarshallingError, MultiReply(results, types).encode()) from None
            results.append(ErrorResult(refused.code))
            types.append(_ERROR_TYPE)
            continue
        results.append(read.reply.decode(body, 0)[0])
        types.append(read.opcode)
    return MultiReply(results, types).encode()
