"""One class per opcode, each tied to the type of its reply.

    @record
    class GetDataRequest(Request[GetDataReply], opcode=4):
        path: UString
        watch: Boolean

The tie is checked when the class is made, and lets `submit(GetDataRequest(...))` be typed as giving a GetDataReply.
A request that only looks or watches is `repeatable`: it may be sent again on the next connection; any other may have
been carried out when its answer is lost, and is never sent twice.
"""

from __future__ import annotations

import enum
from typing import ClassVar, Final, Generic, TypeAlias, TypeVar, get_args

from zkwire.wire.jute import (
    Boolean,
    Buffer,
    Int,
    Long,
    Names,
    NullableUString,
    Record,
    Text,
    Texts,
    UString,
    Vector,
    record,
)
from zkwire.wire.records import ACL, PING_XID, Stat

R = TypeVar("R", bound=Record)

AUTH_XID: Final = -4


class Request(Record, Generic[R]):
    """A request body: its fields, its opcode and the type of its reply."""

    __slots__ = ()

    opcode: ClassVar[int]
    reply: ClassVar[type[Record]]
    repeatable: ClassVar[bool]
    fixed_xid: ClassVar[int | None]
    operation: ClassVar[str]

    def __init_subclass__(cls, *, opcode: int | None = None, repeatable: bool = False, xid: int | None = None) -> None:
        if opcode is None:
            # dataclass(slots=True) makes the class a second time, without keywords; the first time has set all this.
            if not hasattr(cls, "opcode"):
                raise TypeError(f"{cls.__name__} must name its opcode: class {cls.__name__}(Request[...], opcode=...)")
            return
        replies = [get_args(base)[0] for base in getattr(cls, "__orig_bases__", ()) if get_args(base)]
        if len(replies) != 1 or not (isinstance(replies[0], type) and issubclass(replies[0], Record)):
            raise TypeError(f"{cls.__name__} must name the record that answers it: Request[...Reply]")
        cls.opcode = opcode
        cls.reply = replies[0]
        cls.repeatable = repeatable
        cls.fixed_xid = xid
        name = cls.__name__.removesuffix("Request")
        cls.operation = name[:1].lower() + name[1:]

    @property
    def subject(self) -> str | None:
        """The node that the request is about, where it is about one."""
        return getattr(self, "path", None)

    @property
    def described(self) -> str:
        """The request as an error names it: the operation, and the node if it is about one."""
        return self.operation if self.subject is None else f"{self.operation} {self.subject}"


class CreateFlags(enum.IntFlag):
    """The create mode; containers and TTL nodes have opcodes of their own beside it."""

    PERSISTENT = 0
    EPHEMERAL = 1
    SEQUENTIAL = 2
    CONTAINER = 4


class TTLFlags(enum.IntEnum):
    """The create mode of a node with a time to live."""

    PERSISTENT = 5
    SEQUENTIAL = 6


class WatcherType(enum.IntEnum):
    """What removeWatches takes away; servers before 3.9 know the first three only."""

    CHILDREN = 1
    DATA = 2
    ANY = 3
    PERSISTENT = 4
    PERSISTENT_RECURSIVE = 5


class AddWatchMode(enum.IntEnum):
    """What addWatch sets: a watch on the node alone, or on everything below it as well."""

    PERSISTENT = 0
    PERSISTENT_RECURSIVE = 1


@record
class ClientInfo(Record):
    """One identity of a connection, as whoAmI names it: for digest, `user` is the name without the hash."""

    scheme: UString
    user: UString


@record
class Nothing(Record):
    """The reply that is only a header."""


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
    token: Buffer


@record
class GetEphemeralsReply(Record):
    ephemerals: Names


@record
class GetAllChildrenNumberReply(Record):
    number: Int


@record
class WhoAmIReply(Record):
    identities: Vector[ClientInfo]


@record
class CreateRequest(Request[CreateReply], opcode=1):
    path: Text
    data: Buffer
    acl: Vector[ACL]
    flags: Int


@record
class Create2Request(Request[Create2Reply], opcode=15):
    path: Text
    data: Buffer
    acl: Vector[ACL]
    flags: Int


@record
class CreateContainerRequest(Request[Create2Reply], opcode=19):
    path: Text
    data: Buffer
    acl: Vector[ACL]
    flags: Int


@record
class CreateTTLRequest(Request[Create2Reply], opcode=21):
    """`flags` is one of TTLFlags; `ttl` is in milliseconds, 1 to 2**40 - 1."""

    path: Text
    data: Buffer
    acl: Vector[ACL]
    flags: Int
    ttl: Long


AnyCreate: TypeAlias = CreateRequest | Create2Request | CreateContainerRequest | CreateTTLRequest


@record
class DeleteRequest(Request[Nothing], opcode=2):
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
class SetDataRequest(Request[StatReply], opcode=5):
    path: Text
    data: Buffer
    version: Int


@record
class GetACLRequest(Request[GetACLReply], opcode=6, repeatable=True):
    path: Text


@record
class SetACLRequest(Request[StatReply], opcode=7):
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
class GetAllChildrenNumberRequest(Request[GetAllChildrenNumberReply], opcode=104, repeatable=True):
    path: Text


@record
class GetEphemeralsRequest(Request[GetEphemeralsReply], opcode=103, repeatable=True):
    """The paths of the session's ephemeral nodes that start with `prefix`, as text; empty, "/" and null are all."""

    prefix: NullableUString


@record
class WhoAmIRequest(Request[WhoAmIReply], opcode=107, repeatable=True):
    """Which identities the connection has."""


@record
class SyncRequest(Request[SyncReply], opcode=9, repeatable=True):
    path: Text


@record
class CheckVersionRequest(Request[Nothing], opcode=13):
    """Only inside a transaction: on its own, servers before 3.9.3 do not even answer it."""

    path: Text
    version: Int


@record
class PingRequest(Request[Nothing], opcode=11, repeatable=True, xid=PING_XID):
    """A sign of life; answered in order with the others, always under the xid -2."""


@record
class CloseSessionRequest(Request[Nothing], opcode=-11):
    """Ends the session and deletes its ephemeral nodes; the server closes the connection behind the reply."""


@record
class CheckWatchesRequest(Request[Nothing], opcode=17, repeatable=True):
    """Whether the server has a watch of this connection; refused with NoWatcher if not."""

    path: Text
    type: Int


@record
class RemoveWatchesRequest(Request[Nothing], opcode=18):
    path: Text
    type: Int


@record
class SetWatchesRequest(Request[Nothing], opcode=101):
    """Brings a connection's one-shot watches to the next one; what changed since `relative_zxid` fires at once."""

    relative_zxid: Long
    data: Texts
    exist: Texts
    child: Texts


@record
class SetWatches2Request(Request[Nothing], opcode=105):
    """SetWatchesRequest with the watches that stay; those never fire at once."""

    relative_zxid: Long
    data: Texts
    exist: Texts
    child: Texts
    persistent: Texts
    persistent_recursive: Texts


@record
class AddWatchRequest(Request[AddWatchReply], opcode=106, repeatable=True):
    """`mode` is one of AddWatchMode; set twice is set once, and a watch ends with its connection."""

    path: Text
    mode: Int


@record
class ReconfigRequest(Request[GetDataReply], opcode=16):
    """Members to add and to remove, or the whole list, and the configuration's version to start from or -1."""

    joining: NullableUString
    leaving: NullableUString
    members: NullableUString
    config_id: Long


@record
class AuthRequest(Request[Nothing], opcode=100, xid=AUTH_XID):
    """Adds an identity to the connection; `type` is 0."""

    type: Int
    scheme: NullableUString
    data: Buffer


@record
class SaslRequest(Request[SaslReply], opcode=102):
    """One step of a SASL exchange."""

    token: Buffer
