"""The requests: one class per opcode, each tied to the type of its reply.

    @record
    class GetDataRequest(Request[GetDataReply], opcode=4, repeatable=True):
        path: Text
        watch: Boolean

The tie to the reply is checked when the class is made; it gives `submit(GetDataRequest(...))` the type GetDataReply.
A `repeatable` request only reads, only sets a watch, or has the same effect if it is carried out twice: if its reply is
lost, it is sent again on the next connection.
Any other request may have been carried out when its reply is lost, and is never sent twice.
"""

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar, Final, Generic, TypeAlias, TypeVar, get_args

from zkwire.errors import BadArgumentsError, ServerError, UnimplementedError
from zkwire.wire.certainty import AckLevel
from zkwire.wire.jute import Record, record
from zkwire.wire.primitives import (
    Boolean,
    Buffer,
    Int,
    JavaText,
    Long,
    Names,
    NullableUString,
    Secret,
    Text,
    Texts,
    UString,
    Vector,
)
from zkwire.wire.records import ACL, PING_XID, Stat

R = TypeVar("R", bound=Record)

AUTH_XID: Final = -4


class Request(Record, Generic[R]):
    """The body of a request: its fields, its opcode and the type of its reply.

    Args, of the class:
        opcode: The number of the request on the wire.
        repeatable: Whether the request may be sent again when its reply is lost.
        xid: For requests that always have the same one.
        since: The first ZooKeeper version that knows the opcode, for those that 3.4 does not know.
        needs: What the operation requires besides that version, as the end of a sentence.
        hints: What the caller can do about an error code that has a special meaning for this operation.
        ack_level: How far a request goes to be answered, which decides what its answer proves, see certainty.py.
        is_answered_at_once: Whether the server's reading thread answers it, out of the order of the other requests,
            see Connection.send.

    Attributes:
        is_recovered: Whether the client finds out what became of the request if its reply is lost.
    """

    __slots__ = ()

    opcode: ClassVar[int]
    reply: ClassVar[type[Record]]
    repeatable: ClassVar[bool]
    fixed_xid: ClassVar[int | None]
    operation: ClassVar[str]
    hints: ClassVar[Mapping[int, str]]
    ack_level: ClassVar[AckLevel]
    is_answered_at_once: ClassVar[bool]
    is_recovered: ClassVar[bool] = False

    def __init_subclass__(
        cls,
        *,
        opcode: int | None = None,
        repeatable: bool = False,
        xid: int | None = None,
        since: str = "",
        needs: str = "",
        hints: Mapping[int, str] = MappingProxyType({}),
        ack_level: AckLevel = AckLevel.SERVER,
        is_answered_at_once: bool = False,
    ) -> None:
        if opcode is None:
            # dataclass(slots=True) makes each class a second time, without the class arguments.  The second class has
            # the attributes already, because they were copied from the first one.
            if not hasattr(cls, "opcode"):
                raise TypeError(f"{cls.__name__} must name its opcode: class {cls.__name__}(Request[...], opcode=...)")
            return
        replies = [reply for base in getattr(cls, "__orig_bases__", ()) for reply in get_args(base)]
        reply = replies.pop() if len(replies) == 1 else None
        if not (isinstance(reply, type) and issubclass(reply, Record)):
            raise TypeError(f"{cls.__name__} must name the record that answers it: Request[...Reply]")
        cls.opcode = opcode
        cls.reply = reply
        cls.repeatable = repeatable
        cls.fixed_xid = xid
        cls.ack_level = ack_level
        cls.is_answered_at_once = is_answered_at_once
        name = cls.__name__.removesuffix("Request")
        cls.operation = name[:1].lower() + name[1:]
        too_old = {UnimplementedError.code: f"it needs ZooKeeper {since} or newer{needs}"} if since else {}
        cls.hints = {**too_old, **hints}

    @property
    def subject(self) -> str | None:
        """The path of the node that the request is about; None if it is not about one node."""
        return getattr(self, "path", None)

    def refusal(self, code: int, server: str = "", path: str | None = None) -> ServerError:
        """Return the error that says that a server refused this request.

        Args:
            code: The error code of the reply.
            server: The server as "host:port".
            path: The node's path as the caller wrote it, None for the path in the request.
        """
        named = self.subject if path is None else path
        hint = self.hints.get(code, "")
        return ServerError.from_code(code, named, operation=self.operation, server=server, hint=hint)


class CreateFlags(enum.IntFlag):
    """The create mode of a node; containers and TTL nodes have opcodes of their own as well."""

    PERSISTENT = 0
    EPHEMERAL = 1
    SEQUENTIAL = 2
    CONTAINER = 4


class TTLFlags(enum.IntEnum):
    """The create mode of a node with a time to live."""

    PERSISTENT = 5
    SEQUENTIAL = 6


class WatcherType(enum.IntEnum):
    """Which watches of a node removeWatches removes; servers before 3.9 know only the first three."""

    CHILDREN = 1
    DATA = 2
    ANY = 3
    PERSISTENT = 4
    PERSISTENT_RECURSIVE = 5


class AddWatchMode(enum.IntEnum):
    """What addWatch sets: a watch on the node only, or on the node and every node below it."""

    PERSISTENT = 0
    PERSISTENT_RECURSIVE = 1


@record
class ClientInfoRecord(Record):
    """One identity of a connection, as whoAmI lists it; for the scheme digest, `user` is the name without the hash."""

    scheme: UString
    user: JavaText


@record
class Nothing(Record):
    """The body of a reply that consists of its header only."""


@record
class CreateReply(Record):
    path: UString


@record
class Create2Reply(Record):
    path: UString
    stat: Stat


@record
class StatReply(Record):
    stat: Stat


@record
class GetDataReply(Record):
    data: Buffer
    stat: Stat


@record
class GetChildrenReply(Record):
    children: Names


@record
class GetChildren2Reply(Record):
    children: Names
    stat: Stat


@record
class SyncReply(Record):
    path: UString


@record
class GetACLReply(Record):
    acl: Vector[ACL]
    stat: Stat


@record
class AddWatchReply(Record):
    err: Int


@record
class SaslReply(Record):
    token: Secret


@record
class GetEphemeralsReply(Record):
    ephemerals: Names


@record
class GetAllChildrenNumberReply(Record):
    number: Int


@record
class WhoAmIReply(Record):
    identities: Vector[ClientInfoRecord]


@record
class CreateRequest(Request[CreateReply], opcode=1, ack_level=AckLevel.QUORUM):
    path: Text
    data: Buffer
    acl: Vector[ACL]
    flags: Int


@record
class Create2Request(Request[Create2Reply], opcode=15, ack_level=AckLevel.QUORUM, since="3.5.0"):
    path: Text
    data: Buffer
    acl: Vector[ACL]
    flags: Int


@record
class CreateContainerRequest(Request[Create2Reply], opcode=19, ack_level=AckLevel.QUORUM, since="3.5.1"):
    path: Text
    data: Buffer
    acl: Vector[ACL]
    flags: Int


@record
class CreateTTLRequest(
    Request[Create2Reply],
    opcode=21,
    ack_level=AckLevel.QUORUM,
    since="3.5.3",
    needs=", started with -Dzookeeper.extendedTypesEnabled=true",
):
    """Create a node with a time to live: `flags` is one of TTLFlags; `ttl` is in milliseconds, 1 to 2**40 - 1."""

    path: Text
    data: Buffer
    acl: Vector[ACL]
    flags: Int
    ttl: Long


class RecoveredCreate2Request(Create2Request):
    __slots__ = ()
    is_recovered = True


class RecoveredCreateContainerRequest(CreateContainerRequest):
    __slots__ = ()
    is_recovered = True


class RecoveredCreateTTLRequest(CreateTTLRequest):
    __slots__ = ()
    is_recovered = True


AnyCreate: TypeAlias = CreateRequest | Create2Request | CreateContainerRequest | CreateTTLRequest


@record
class DeleteRequest(
    Request[Nothing],
    opcode=2,
    ack_level=AckLevel.QUORUM,
    hints={BadArgumentsError.code: "the root and /zookeeper cannot be deleted"},
):
    path: Text
    version: Int


@record
class ExistsRequest(Request[StatReply], opcode=3, repeatable=True):
    path: Text
    watch: Boolean


@record
class GetDataRequest(Request[GetDataReply], opcode=4, repeatable=True):
    path: Text
    watch: Boolean


@record
class SetDataRequest(Request[StatReply], opcode=5, ack_level=AckLevel.QUORUM):
    path: Text
    data: Buffer
    version: Int


@record
class GetACLRequest(Request[GetACLReply], opcode=6, repeatable=True):
    path: Text


@record
class SetACLRequest(Request[StatReply], opcode=7, ack_level=AckLevel.QUORUM):
    path: Text
    acl: Vector[ACL]
    version: Int


@record
class GetChildrenRequest(Request[GetChildrenReply], opcode=8, repeatable=True):
    path: Text
    watch: Boolean


@record
class GetChildren2Request(Request[GetChildren2Reply], opcode=12, repeatable=True):
    path: Text
    watch: Boolean


@record
class GetAllChildrenNumberRequest(Request[GetAllChildrenNumberReply], opcode=104, repeatable=True, since="3.6.0"):
    path: Text


@record
class GetEphemeralsRequest(Request[GetEphemeralsReply], opcode=103, repeatable=True, since="3.6.0"):
    """List the session's ephemeral nodes whose paths start with the text `prefix`; empty, "/" and null match all."""

    prefix: NullableUString


@record
class WhoAmIRequest(Request[WhoAmIReply], opcode=107, repeatable=True, since="3.7.0"):
    """List the identities of the connection."""


@record
class SyncRequest(Request[SyncReply], opcode=9, repeatable=True, ack_level=AckLevel.LEADER):
    path: Text


@record
class CheckVersionRequest(Request[Nothing], opcode=13):
    """Check a node's version, inside a transaction only: servers before 3.9.3 do not even answer it alone."""

    path: Text
    version: Int


@record
class PingRequest(Request[Nothing], opcode=11, repeatable=True, xid=PING_XID):
    """Show the server that the session is alive; answered in order with other requests, always with the xid -2."""


@record
class CloseSessionRequest(Request[Nothing], opcode=-11, repeatable=True):
    """End the session and delete its ephemeral nodes; the server closes the connection after the reply.

    It is repeatable: the next connection either shows that the session is gone, or gets the request again.
    """


@record
class CheckWatchesRequest(Request[Nothing], opcode=17, repeatable=True, since="3.5.0"):
    """Ask whether the server has such a watch of this connection; refused with NoWatcher if it has none."""

    path: Text
    type: Int


@record
class RemoveWatchesRequest(Request[Nothing], opcode=18, since="3.5.0"):
    path: Text
    type: Int


@record
class SetWatchesRequest(Request[Nothing], opcode=101):
    """Set one-shot watches again on a new connection; watches of nodes changed since `relative_zxid` fire at once."""

    relative_zxid: Long
    data: Texts
    exist: Texts
    child: Texts


@record
class SetWatches2Request(Request[Nothing], opcode=105, since="3.6.0"):
    """Set one-shot and persistent watches again on a new connection; persistent ones never fire at once."""

    relative_zxid: Long
    data: Texts
    exist: Texts
    child: Texts
    persistent: Texts
    persistent_recursive: Texts


SET_WATCHES: Final = (SetWatchesRequest, SetWatches2Request)


@record
class AddWatchRequest(Request[AddWatchReply], opcode=106, repeatable=True, since="3.6.0"):
    """Set a persistent watch; `mode` is one of AddWatchMode.  Setting it twice has no further effect."""

    path: Text
    mode: Int


@record
class ReconfigRequest(
    Request[GetDataReply],
    opcode=16,
    ack_level=AckLevel.QUORUM,
    since="3.5.0",
    needs=", and an ensemble: a single server has no members to change",
    hints={
        BadArgumentsError.code: (
            "a server is 'server.4=host:port:port:role;port', and enough voting servers must remain for a quorum"
        )
    },
):
    """Change the ensemble: members to add and to remove, or the whole list.

    `config_id` is the version that the present configuration must have, -1 for any.
    """

    joining: NullableUString
    leaving: NullableUString
    members: NullableUString
    config_id: Long


@record
class AuthRequest(Request[Nothing], opcode=100, xid=AUTH_XID, is_answered_at_once=True):
    """Add an identity to the connection; `type` is 0."""

    type: Int
    scheme: NullableUString
    data: Secret


@record
class SaslRequest(Request[SaslReply], opcode=102, is_answered_at_once=True):
    """Send one step of a SASL exchange."""

    token: Secret
