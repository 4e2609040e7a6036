"""What each request that changes nodes checks, in the real server's order, and does.

Every function takes the state, the connection and the decoded request; the transaction is the state's last zxid.  It
returns the change, which sends its events later: at once, or at the end of a multi.  It raises Refused, with nothing
done, if the request is answered with an error.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, get_args

from zkwire import errors, paths
from zkwire.testing.memory import access
from zkwire.testing.memory.refusal import Refused
from zkwire.testing.memory.sessions import ServerSession
from zkwire.testing.memory.state import ServerConnection, State
from zkwire.testing.memory.tree import CONTAINER, LONGEST_TTL, PROTECTED, Node, as_int, ttl_owner
from zkwire.testing.memory.watch_manager import SEE_CHILDREN, SEE_DATA
from zkwire.wire import requests
from zkwire.wire.jute import Record
from zkwire.wire.multi import ErrorResult, MultiReply, MultiRequest
from zkwire.wire.primitives import encode_ustring
from zkwire.wire.records import ACL, Perms
from zkwire.wire.requests import AnyCreate, CreateFlags, Request, TTLFlags
from zkwire.wire.watch_table import WatchEventType

_ANY_VERSION: Final = -1
_ERROR_TYPE: Final = -1
_HIGHEST_FLAGS: Final = TTLFlags.SEQUENTIAL
_SEQUENTIAL: Final = (CreateFlags.SEQUENTIAL, CreateFlags.EPHEMERAL | CreateFlags.SEQUENTIAL, TTLFlags.SEQUENTIAL)
_EPHEMERAL: Final = (CreateFlags.EPHEMERAL, CreateFlags.EPHEMERAL | CreateFlags.SEQUENTIAL)
_TTL: Final = (TTLFlags.PERSISTENT, TTLFlags.SEQUENTIAL)


@dataclass(slots=True)
class Change:
    """One change of the tree: the events that it causes, and the node that the reply shows.

    `event` is CREATED, DELETED, CHANGED, or 0 for a change that causes none; CHANGED needs no `parent_acl`.
    """

    event: int
    path: str
    node: Node
    parent_acl: tuple[ACL, ...] = ()

    def send_events(self, state: State) -> None:
        """Send the events of the last transaction, first for the node, then for the children of its parent."""
        if not self.event or not state.watches.by_path:
            return
        is_deleted = self.event == WatchEventType.DELETED
        watchers = state.watches.deleted(self.path) if is_deleted else state.watches.trigger(self.path, SEE_DATA)
        state.notify_all(watchers, self.event, self.path, self.node.acl)
        if self.event != WatchEventType.CHANGED:
            parent = self.path.rpartition("/")[0] or "/"
            watchers = state.watches.trigger(parent, SEE_CHILDREN)
            state.notify_all(watchers, WatchEventType.CHILDREN, parent, self.parent_acl)


def _parent(path: str) -> str:
    if path is None:
        raise Refused(errors.MarshallingError)
    if "/" not in path or "\0" in path:
        raise Refused(errors.BadArgumentsError)
    return path.rpartition("/")[0]


def _validate(path: str) -> None:
    if path is None:
        raise Refused(errors.BadArgumentsError)
    try:
        paths.validate(path)
    except ValueError:
        raise Refused(errors.BadArgumentsError) from None


def _check_version(current: int, expected: int) -> None:
    if expected not in (_ANY_VERSION, current):
        raise Refused(errors.BadVersionError)


def _owner(state: State, connection: ServerConnection, request: AnyCreate) -> int:
    """Return the owner of the node to create: a session, or the number that marks its kind."""
    flags = request.flags
    if not 0 <= flags <= _HIGHEST_FLAGS:
        raise Refused(errors.BadArgumentsError)
    if flags in _TTL:
        if not state.settings.ttl_nodes:
            raise Refused(errors.UnimplementedError)
        if not isinstance(request, requests.CreateTTLRequest) or not 0 < request.ttl <= LONGEST_TTL:
            raise Refused(errors.BadArgumentsError)
        return ttl_owner(request.ttl)
    if isinstance(request, requests.CreateTTLRequest):
        raise Refused(errors.BadArgumentsError)
    if isinstance(request, requests.CreateContainerRequest):
        return CONTAINER
    # With an opcode for plain nodes, the flags of a container make a plain node.
    assert connection.session is not None
    return connection.session.id if flags in _EPHEMERAL else 0


def create(state: State, connection: ServerConnection, request: AnyCreate) -> Change:
    """Create a node; a sequential one gets the parent's counter as the end of its name."""
    owner = _owner(state, connection, request)
    parent_path = _parent(request.path)
    acl = access.stored(request.acl, connection.identities)
    parent = state.allowed(connection, parent_path, Perms.CREATE)
    path = request.path
    if request.flags in _SEQUENTIAL:
        path = f"{path}{parent.creates:010d}"
    _validate(path)
    if path in state.tree.nodes:
        raise Refused(errors.NodeExistsError)
    if parent.is_ephemeral:
        raise Refused(errors.NoChildrenForEphemeralsError)
    node = state.tree.create(path, request.data, acl, owner, state.last_zxid, state.wall_ms())
    return Change(WatchEventType.CREATED, path, node, parent.acl)


def delete(state: State, connection: ServerConnection, request: requests.DeleteRequest) -> Change:
    """Delete a node."""
    path = request.path
    parent_path = _parent(path)
    if path in PROTECTED:
        raise Refused(errors.BadArgumentsError)
    parent = state.allowed(connection, parent_path, Perms.DELETE)
    # The checks come in the order of the real server: permission, existence, version, children.
    node = state.tree.nodes.get(path)
    if node is None:
        raise Refused(errors.NoNodeError)
    _check_version(node.version, request.version)
    if node.children:
        raise Refused(errors.NotEmptyError)
    state.tree.delete(path, state.last_zxid)
    return Change(WatchEventType.DELETED, path, node, parent.acl)


def set_data(state: State, connection: ServerConnection, request: requests.SetDataRequest) -> Change:
    """Set the data of a node."""
    _validate(request.path)
    node = state.allowed(connection, request.path, Perms.WRITE)
    _check_version(node.version, request.version)
    state.tree.set_data(request.path, request.data, state.last_zxid, state.wall_ms())
    return Change(WatchEventType.CHANGED, request.path, node)


def set_acl(state: State, connection: ServerConnection, request: requests.SetACLRequest) -> Change:
    """Set the ACL of a node; this causes no event."""
    _validate(request.path)
    acl = access.stored(request.acl, connection.identities)
    node = state.allowed(connection, request.path, Perms.ADMIN)
    _check_version(node.aversion, request.version)
    node.acl = acl  # no multi contains this change, so it is never undone
    node.aversion = as_int(node.aversion + 1)
    return Change(0, request.path, node)


def check(state: State, connection: ServerConnection, request: requests.CheckVersionRequest) -> Change:
    """Compare the version of a node; allowed only inside a multi."""
    _validate(request.path)
    node = state.allowed(connection, request.path, Perms.READ)
    _check_version(node.version, request.version)
    return Change(0, request.path, node)


def reconfig(state: State, connection: ServerConnection, request: requests.ReconfigRequest) -> Change:
    """Refuse a reconfiguration, which a server has switched off by default."""
    raise Refused(errors.ReconfigDisabledError)


def body(request: type[Request[Any]], change: Change) -> bytes:
    """Return the body of the reply to a request of that kind: the path, the Stat, both, or nothing."""
    path = encode_ustring(change.path) if request.reply in (requests.CreateReply, requests.Create2Reply) else b""
    return path + (change.node.stat() if request.reply in (requests.Create2Reply, requests.StatReply) else b"")


# -- several writes in one ----------------------------------------------------------------------------

CREATES: Final[tuple[type[Request[Any]], ...]] = get_args(AnyCreate)
Write: TypeAlias = Callable[[State, ServerConnection, Any], Change]
_PARTS: Final[dict[type[Request[Any]], Write]] = {
    **dict.fromkeys(CREATES, create),
    requests.DeleteRequest: delete,
    requests.SetDataRequest: set_data,
    requests.CheckVersionRequest: check,
}


def multi(state: State, connection: ServerConnection, request: MultiRequest) -> bytes:
    """Carry out all parts or none, and return the results; a refused part does not raise Refused."""
    parts = [_part(part) for part in request.operations]
    changes: list[Change] = []
    results: list[Record] = []
    types: list[int] = []
    state.tree.begin()
    try:
        for part in parts:
            change = _PARTS[type(part)](state, connection, part)
            changes.append(change)
            is_create2 = part.reply is requests.Create2Reply
            types.append(requests.Create2Request.opcode if is_create2 else part.opcode)
            results.append(part.reply.decode(body(type(part), change), 0)[0])
    except Refused as refused:
        state.tree.rollback()
        if refused.code == errors.MarshallingError.code:
            raise
        after = len(parts) - len(changes) - 1
        codes = [0] * len(changes) + [refused.code] + [errors.RuntimeInconsistencyError.code] * after
        return MultiReply([ErrorResult(code) for code in codes], [_ERROR_TYPE] * len(codes)).encode()
    state.tree.commit()
    for change in changes:
        change.send_events(state)
    return MultiReply(results, types).encode()


def _part(part: Request[Any]) -> Request[Any]:
    """Return a part as the real server understands it: the create mode in the flags counts, not the opcode.

    Raises:
        Refused: if the whole multi fails and not the part alone.
    """
    if type(part) not in _PARTS or part.subject is None:
        raise Refused(errors.MarshallingError)
    if isinstance(part, AnyCreate):
        is_known = 0 <= part.flags <= _HIGHEST_FLAGS
        if isinstance(part, requests.CreateTTLRequest):
            if part.flags in _TTL or not is_known:
                return part
            part = requests.CreateRequest(part.path, part.data, part.acl, part.flags)
        if part.flags in _TTL or not is_known:
            raise Refused(errors.MarshallingError)
        if part.flags == CreateFlags.CONTAINER:
            return requests.CreateContainerRequest(part.path, part.data, part.acl, part.flags)
    return part


# -- what the server does by itself -------------------------------------------------------------------


def remove(state: State, path: str) -> None:
    """Delete a node without any check, at the end of a session or in the clean-up of containers and TTL nodes."""
    parent = state.tree.nodes[path.rpartition("/")[0]]
    node = state.tree.delete(path, state.last_zxid)
    Change(WatchEventType.DELETED, path, node, parent.acl).send_events(state)


def end_session(state: State, session: ServerSession[ServerConnection]) -> None:
    """End a session and delete its ephemeral nodes in one transaction."""
    state.next_zxid()
    for path in state.tree.ephemerals(session.id):
        remove(state, path)
    del state.sessions.by_id[session.id]


def close_session(state: State, connection: ServerConnection, request: requests.CloseSessionRequest) -> bytes:
    """End the session, and the connection after the reply; the events of the session's nodes come before it."""
    assert connection.session is not None
    end_session(state, connection.session)
    state.close(connection)
    return b""
