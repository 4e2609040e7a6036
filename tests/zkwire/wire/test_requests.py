"""Requests: the opcode and the reply of each class, its declaration, its hints, and the order of its fields.

The whole frames of most requests and replies are compared with recorded ones, in test_java_frames.py (requests of the
Java client) and in tests/captures (what a real server answered).
"""

from typing import Any, Generic, TypeVar

import pytest

from zkwire.wire import multi, requests
from zkwire.wire.certainty import AckLevel
from zkwire.wire.jute import Record, record
from zkwire.wire.primitives import UString
from zkwire.wire.records import ACL, OPEN_ACL, PING_XID, Stat
from zkwire.wire.requests import (
    AddWatchReply,
    AddWatchRequest,
    AuthRequest,
    CheckVersionRequest,
    CheckWatchesRequest,
    ClientInfoRecord,
    CloseSessionRequest,
    Create2Reply,
    Create2Request,
    CreateContainerRequest,
    CreateFlags,
    CreateReply,
    CreateRequest,
    CreateTTLRequest,
    DeleteRequest,
    ExistsRequest,
    GetACLReply,
    GetACLRequest,
    GetAllChildrenNumberReply,
    GetAllChildrenNumberRequest,
    GetChildren2Reply,
    GetChildren2Request,
    GetChildrenReply,
    GetChildrenRequest,
    GetDataReply,
    GetDataRequest,
    GetEphemeralsReply,
    GetEphemeralsRequest,
    Nothing,
    PingRequest,
    ReconfigRequest,
    RemoveWatchesRequest,
    Request,
    SaslReply,
    SaslRequest,
    SetACLRequest,
    SetDataRequest,
    SetWatches2Request,
    SetWatchesRequest,
    StatReply,
    SyncReply,
    SyncRequest,
    TTLFlags,
    WatcherType,
    WhoAmIReply,
    WhoAmIRequest,
)

T = TypeVar("T")

# Each request with its opcode, its reply, whether it may be repeated because it changes nothing, and the first version
# of ZooKeeper that knows it, if 3.4 does not.
TABLE: dict[type[Request[Any]], tuple[int, type[Record], bool, str]] = {
    CreateRequest: (1, CreateReply, False, ""),
    DeleteRequest: (2, Nothing, False, ""),
    ExistsRequest: (3, StatReply, True, ""),
    GetDataRequest: (4, GetDataReply, True, ""),
    SetDataRequest: (5, StatReply, False, ""),
    GetACLRequest: (6, GetACLReply, True, ""),
    SetACLRequest: (7, StatReply, False, ""),
    GetChildrenRequest: (8, GetChildrenReply, True, ""),
    SyncRequest: (9, SyncReply, True, ""),
    PingRequest: (11, Nothing, True, ""),
    GetChildren2Request: (12, GetChildren2Reply, True, ""),
    CheckVersionRequest: (13, Nothing, False, ""),
    multi.MultiRequest: (14, multi.MultiReply, False, ""),
    Create2Request: (15, Create2Reply, False, "3.5.0"),
    ReconfigRequest: (16, GetDataReply, False, "3.5.0"),
    CheckWatchesRequest: (17, Nothing, True, "3.5.0"),
    RemoveWatchesRequest: (18, Nothing, False, "3.5.0"),
    CreateContainerRequest: (19, Create2Reply, False, "3.5.1"),
    CreateTTLRequest: (21, Create2Reply, False, "3.5.3"),
    multi.MultiReadRequest: (22, multi.MultiReply, True, "3.6.0"),
    AuthRequest: (100, Nothing, False, ""),
    SetWatchesRequest: (101, Nothing, False, ""),
    SaslRequest: (102, SaslReply, False, ""),
    GetEphemeralsRequest: (103, GetEphemeralsReply, True, "3.6.0"),
    GetAllChildrenNumberRequest: (104, GetAllChildrenNumberReply, True, "3.6.0"),
    SetWatches2Request: (105, Nothing, False, "3.6.0"),
    AddWatchRequest: (106, AddWatchReply, True, "3.6.0"),
    WhoAmIRequest: (107, WhoAmIReply, True, "3.7.0"),
    CloseSessionRequest: (-11, Nothing, True, ""),
}

each_request = pytest.mark.parametrize("cls", TABLE, ids=lambda cls: cls.__name__)


def test_the_table_names_all_requests() -> None:
    found = {
        value
        for module in (requests, multi)
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Request) and value is not Request and not value.is_recovered
    }
    assert set(TABLE) == found
    assert len({cls.opcode for cls in found}) == len(found)


@each_request
def test_each_request_has_the_opcode_the_reply_and_the_repeatability_of_the_table(cls: type[Request[Any]]) -> None:
    """Pitfall 60: a write must not be repeated.  Pitfall 68: a container has an opcode of its own."""
    assert (cls.opcode, cls.reply, cls.repeatable) == TABLE[cls][:3]


# The requests that a quorum must commit.
QUORUM = {
    CreateRequest,
    Create2Request,
    CreateContainerRequest,
    CreateTTLRequest,
    DeleteRequest,
    SetDataRequest,
    SetACLRequest,
    ReconfigRequest,
    multi.MultiRequest,
}


@each_request
def test_only_a_write_proves_a_quorum_and_a_sync_the_leader(cls: type[Request[Any]]) -> None:
    assert cls.ack_level is (
        AckLevel.QUORUM if cls in QUORUM else AckLevel.LEADER if cls is SyncRequest else AckLevel.SERVER
    )


@each_request
def test_auth_and_sasl_are_answered_out_of_order(cls: type[Request[Any]]) -> None:
    assert cls.is_answered_at_once is (cls in (AuthRequest, SaslRequest))


@each_request
def test_only_ping_and_auth_have_an_xid_of_their_own(cls: type[Request[Any]]) -> None:
    assert cls.fixed_xid == (PING_XID if cls is PingRequest else -4 if cls is AuthRequest else None)


def test_an_operation_has_the_name_that_zookeeper_uses() -> None:
    assert GetDataRequest.operation == "getData"
    assert Create2Request.operation == "create2"
    assert CloseSessionRequest.operation == "closeSession"


def test_the_subject_of_a_request_is_its_path() -> None:
    assert DeleteRequest("/a", -1).subject == "/a"
    assert PingRequest().subject is None
    assert SetWatchesRequest(0, [], [], []).subject is None
    assert multi.MultiRequest([DeleteRequest("/a", -1)]).subject is None


def test_flags_and_watcher_types_have_the_numbers_of_the_protocol() -> None:
    assert {flag.name: flag.value for flag in CreateFlags} == {"EPHEMERAL": 1, "SEQUENTIAL": 2, "CONTAINER": 4}
    assert int(CreateFlags.EPHEMERAL | CreateFlags.SEQUENTIAL) == 3
    assert {kind.name: kind.value for kind in WatcherType} == {
        "CHILDREN": 1,
        "DATA": 2,
        "ANY": 3,
        "PERSISTENT": 4,
        "PERSISTENT_RECURSIVE": 5,
    }


# -- declarations -------------------------------------------------------------------------------------


def test_a_request_that_names_no_opcode_is_refused_when_the_class_is_made() -> None:
    with pytest.raises(TypeError, match="ForgottenRequest must name its opcode"):

        @record
        class ForgottenRequest(Request[Nothing]):
            path: UString


def test_a_request_that_names_no_reply_is_refused_when_the_class_is_made() -> None:
    with pytest.raises(TypeError, match="ForgottenRequest must name the record that answers it"):

        class ForgottenRequest(Request, opcode=99):  # type: ignore[type-arg]
            pass


def test_a_request_whose_reply_is_no_record_is_refused_when_the_class_is_made() -> None:
    with pytest.raises(TypeError, match="WrongRequest must name the record that answers it"):

        class WrongRequest(Request[str], opcode=99):  # type: ignore[type-var]
            pass


def test_a_request_with_two_replies_is_refused_when_the_class_is_made() -> None:
    with pytest.raises(TypeError, match="DoubleRequest must name the record that answers it"):

        class DoubleRequest(Request[Nothing], Generic[T], opcode=99):
            pass


def test_a_request_keeps_what_its_class_declares() -> None:
    @record
    class KnockKnockRequest(Request[SyncReply], opcode=99, repeatable=True, xid=-9):
        path: UString

    made = KnockKnockRequest("/a")
    assert (made.opcode, made.reply, made.repeatable, made.fixed_xid) == (99, SyncReply, True, -9)
    assert made.operation == "knockKnock"
    assert made.encode() == b"\0\0\0\2/a"


# -- hints: what the caller can do about a refusal -------------------------------------------------------


@each_request
def test_the_refusal_of_an_unknown_operation_names_the_version_that_has_it(cls: type[Request[Any]]) -> None:
    version = TABLE[cls][3]
    hint = cls.hints.get(-6, "")
    assert hint.startswith(f"it needs ZooKeeper {version} or newer" if version else "")
    assert bool(hint) is bool(version)


@pytest.mark.parametrize(
    ("request_", "code", "hint"),
    [
        (CreateTTLRequest("/a", b"", [], 5, 1), -6, "zookeeper.extendedTypesEnabled=true"),
        (ReconfigRequest(None, None, None, -1), -6, "an ensemble"),
        (multi.MultiReadRequest([]), -6, "Client.pipeline"),
        (DeleteRequest("/", -1), -8, "the root and /zookeeper cannot be deleted"),
        (ReconfigRequest(None, None, None, -1), -8, "server.4=host:port:port:role;port"),
        (Create2Request("/a", b"", [], 0), -8, ""),
        (DeleteRequest("/a", -1), -6, ""),
    ],
)
def test_a_refusal_says_what_the_caller_can_do(request_: Request[Any], code: int, hint: str) -> None:
    error = request_.refusal(code, "zk1:2181")
    assert hint in str(error)
    assert bool(error.hint) is bool(hint)
    assert (error.code, error.path, error.server) == (code, request_.subject, "zk1:2181")
    assert error.operation == request_.operation


def test_a_refusal_can_name_the_path_as_the_caller_wrote_it() -> None:
    assert DeleteRequest("/chroot/a", -1).refusal(-101, path="/a").path == "/a"


# -- fields ---------------------------------------------------------------------------------------------

OPEN = list(OPEN_ACL)
STAT = Stat(*range(11))
STAT_HEX = (
    "0000000000000000 0000000000000001 0000000000000002 0000000000000003 00000004 00000005 00000006"
    "0000000000000007 00000008 00000009 000000000000000a"
)


@pytest.mark.parametrize(
    ("request_", "hexadecimal"),
    [
        (CheckVersionRequest("/m", 0), "00000002 2f6d 00000000"),
        (SetDataRequest("/m", b"22", 0), "00000002 2f6d 00000002 3232 00000000"),
        (SetDataRequest("/m", None, -1), "00000002 2f6d ffffffff ffffffff"),
        (GetDataRequest("/m", True), "00000002 2f6d 01"),
        (GetChildren2Request("/m", True), "00000002 2f6d 01"),
        (RemoveWatchesRequest("/m", WatcherType.CHILDREN), "00000002 2f6d 00000001"),
        (CheckWatchesRequest("/m", WatcherType.PERSISTENT), "00000002 2f6d 00000004"),
        (GetAllChildrenNumberRequest("/m"), "00000002 2f6d"),
        (GetEphemeralsRequest(None), "ffffffff"),
        (SaslRequest(None), "ffffffff"),
        (ReconfigRequest(None, "2,3", None, -1), "ffffffff 00000003 322c33 ffffffff ffffffffffffffff"),
        (
            SetACLRequest("/m", OPEN, 3),
            "00000002 2f6d 00000001 0000001f 00000005 776f726c64 00000006 616e796f6e65 00000003",
        ),
        (
            CreateTTLRequest("/m", b"", [], TTLFlags.SEQUENTIAL, 1),
            "00000002 2f6d 00000000 00000000 00000006 0000000000000001",
        ),
        (
            SetWatches2Request(1, ["/a"], [], [], ["/b"], ["/c"]),
            "0000000000000001 00000001 00000002 2f61 00000000 00000000 00000001 00000002 2f62 00000001 00000002 2f63",
        ),
        (
            Create2Request("/m", None, [ACL(1, "ip", "::1"), *OPEN], 0),
            "00000002 2f6d ffffffff 00000002 00000001 00000002 6970 00000003 3a3a31"
            "0000001f 00000005 776f726c64 00000006 616e796f6e65 00000000",
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_request_has_its_fields_in_the_order_of_the_protocol(request_: Request[Any], hexadecimal: str) -> None:
    encoded = bytes.fromhex(hexadecimal)
    assert request_.encode() == encoded
    assert type(request_).decode(encoded, 0) == (request_, len(encoded))


def test_null_data_is_not_empty_data() -> None:
    """A node stores which of the two it was given."""
    assert GetDataReply.decode(b"\xff\xff\xff\xff" + STAT.encode(), 0)[0] == GetDataReply(None, STAT)
    assert GetDataReply.decode(b"\0\0\0\0" + STAT.encode(), 0)[0] == GetDataReply(b"", STAT)


@pytest.mark.parametrize(
    ("reply", "hexadecimal"),
    [
        (CreateReply("/m"), "00000002 2f6d"),
        (SyncReply("/m"), "00000002 2f6d"),
        (GetChildrenReply(["a", "bc"]), "00000002 00000001 61 00000002 6263"),
        (GetEphemeralsReply(["/m"]), "00000001 00000002 2f6d"),
        (GetAllChildrenNumberReply(7), "00000007"),
        (AddWatchReply(-1), "ffffffff"),
        (SaslReply(b"t"), "00000001 74"),
        (SaslReply(None), "ffffffff"),
        (GetACLReply([ACL(1, "ip", "::1")], STAT), "00000001 00000001 00000002 6970 00000003 3a3a31" + STAT_HEX),
        (Create2Reply("/m", STAT), "00000002 2f6d" + STAT_HEX),
        (GetChildren2Reply([], STAT), "00000000" + STAT_HEX),
        (WhoAmIReply([ClientInfoRecord("digest", "bob")]), "00000001 00000006 646967657374 00000003 626f62"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_reply_has_its_fields_in_the_order_of_the_protocol(reply: Record, hexadecimal: str) -> None:
    encoded = bytes.fromhex(hexadecimal)
    assert reply.encode() == encoded
    assert type(reply).decode(encoded, 0) == (reply, len(encoded))
