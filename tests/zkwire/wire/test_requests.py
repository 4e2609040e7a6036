"""One class per opcode: the table of PROTOCOL 4.1, the tie to the reply, and the worked bytes of PROTOCOL 15."""

from typing import Any, Generic, TypeVar

import pytest

from zkwire.wire import multi, requests
from zkwire.wire.jute import Record, UString, record
from zkwire.wire.records import ACL, OPEN_ACL, PING_XID, ReplyHeader, RequestHeader, Stat
from zkwire.wire.requests import (
    AddWatchMode,
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

# PROTOCOL 4.1, by the operation's name in small letters: opcode, and whether it only looks.
OPCODES = {
    "create": (1, False),
    "delete": (2, False),
    "exists": (3, True),
    "getdata": (4, True),
    "setdata": (5, False),
    "getacl": (6, True),
    "setacl": (7, False),
    "getchildren": (8, True),
    "sync": (9, True),
    "ping": (11, True),
    "getchildren2": (12, True),
    "checkversion": (13, False),
    "multi": (14, False),
    "create2": (15, False),
    "reconfig": (16, False),
    "checkwatches": (17, True),
    "removewatches": (18, False),
    "createcontainer": (19, False),
    "createttl": (21, False),
    "multiread": (22, True),
    "auth": (100, False),
    "setwatches": (101, False),
    "sasl": (102, False),
    "getephemerals": (103, True),
    "getallchildrennumber": (104, True),
    "setwatches2": (105, False),
    "addwatch": (106, True),
    "whoami": (107, True),
    "closesession": (-11, False),
}

REPLIES: dict[type[Request[Any]], type[Record]] = {
    CreateRequest: CreateReply,
    Create2Request: Create2Reply,
    CreateContainerRequest: Create2Reply,
    DeleteRequest: Nothing,
    ExistsRequest: StatReply,
    GetDataRequest: GetDataReply,
    SetDataRequest: StatReply,
    GetChildrenRequest: GetChildrenReply,
    GetChildren2Request: GetChildren2Reply,
    SyncRequest: SyncReply,
    CheckVersionRequest: Nothing,
    PingRequest: Nothing,
    CloseSessionRequest: Nothing,
    RemoveWatchesRequest: Nothing,
    SetWatchesRequest: Nothing,
    SetWatches2Request: Nothing,
    CreateTTLRequest: Create2Reply,
    GetACLRequest: GetACLReply,
    SetACLRequest: StatReply,
    GetAllChildrenNumberRequest: GetAllChildrenNumberReply,
    GetEphemeralsRequest: GetEphemeralsReply,
    WhoAmIRequest: WhoAmIReply,
    CheckWatchesRequest: Nothing,
    AddWatchRequest: AddWatchReply,
    ReconfigRequest: GetDataReply,
    AuthRequest: Nothing,
    SaslRequest: SaslReply,
    multi.MultiRequest: multi.MultiReply,
    multi.MultiReadRequest: multi.MultiReply,
}

REQUESTS: list[type[Request[Any]]] = sorted(
    {
        value
        for module in (requests, multi)
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Request) and value is not Request
    },
    key=lambda cls: cls.opcode,
)


@pytest.mark.parametrize("cls", REQUESTS, ids=lambda cls: cls.__name__)
def test_each_request_has_the_opcode_of_the_table(cls: type[Request[Any]]) -> None:
    """pitfall 68: a container made with the opcode of a plain create is a plain node."""
    assert cls.opcode == OPCODES[cls.operation.lower()][0]


def test_no_two_requests_share_an_opcode() -> None:
    opcodes = [cls.opcode for cls in REQUESTS]
    assert len(opcodes) == len(set(opcodes))
    assert set(REPLIES) == set(REQUESTS)
    assert {cls.opcode for cls in REQUESTS} == {opcode for opcode, _ in OPCODES.values()}


@pytest.mark.parametrize("cls", REQUESTS, ids=lambda cls: cls.__name__)
def test_only_requests_that_look_may_be_repeated(cls: type[Request[Any]]) -> None:
    """pitfall 60"""
    assert cls.repeatable is OPCODES[cls.operation.lower()][1]


@pytest.mark.parametrize(("cls", "reply"), REPLIES.items(), ids=lambda cls: cls.__name__)
def test_each_request_is_tied_to_its_reply(cls: type[Request[Any]], reply: type[Record]) -> None:
    assert cls.reply is reply


@pytest.mark.parametrize("cls", REQUESTS, ids=lambda cls: cls.__name__)
def test_only_the_ping_has_an_xid_of_its_own(cls: type[Request[Any]]) -> None:
    assert cls.fixed_xid == (PING_XID if cls is PingRequest else -4 if cls.opcode == 100 else None)


def test_operations_have_the_names_of_zookeeper() -> None:
    assert GetDataRequest.operation == "getData"
    assert Create2Request.operation == "create2"
    assert CloseSessionRequest.operation == "closeSession"


def test_the_subject_of_a_request_is_its_path() -> None:
    assert DeleteRequest("/a", -1).subject == "/a"
    assert PingRequest().subject is None
    assert SetWatchesRequest(0, [], [], []).subject is None
    assert multi.MultiRequest([DeleteRequest("/a", -1)]).subject is None


def test_the_numbers_on_the_wire_are_those_of_the_protocol() -> None:
    assert {flag.name: flag.value for flag in CreateFlags} == {"EPHEMERAL": 1, "SEQUENTIAL": 2, "CONTAINER": 4}
    assert int(CreateFlags.EPHEMERAL | CreateFlags.SEQUENTIAL) == 3
    assert {kind.name: kind.value for kind in WatcherType} == {
        "CHILDREN": 1, "DATA": 2, "ANY": 3, "PERSISTENT": 4, "PERSISTENT_RECURSIVE": 5
    }  # fmt: skip


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


def test_a_declared_request_knows_what_it_was_told() -> None:
    @record
    class KnockKnockRequest(Request[SyncReply], opcode=99, repeatable=True, xid=-9):
        path: UString

    made = KnockKnockRequest("/a")
    assert (made.opcode, made.reply, made.repeatable, made.fixed_xid) == (99, SyncReply, True, -9)
    assert made.operation == "knockKnock"
    assert made.encode() == b"\0\0\0\2/a"


# -- the worked bytes of PROTOCOL 15 ------------------------------------------------------------------

LOCK = "/lock-0000000000"
OPEN = list(OPEN_ACL)
C_STAT = Stat(6, 6, 0x01A1FA8988B4, 0x01A1FA8988B4, 0, 0, 0, 0, 0, 0, 6)
LOCK_STAT = Stat(2, 2, 0x01A1FA898892, 0x01A1FA898892, 0, 0, 0, 0x0100001E14CA0000, 2, 0, 2)

WORKED: list[tuple[str, int, Request[Any], str, ReplyHeader, Record | None, str]] = [
    (
        "15.2 create",
        1,
        CreateRequest("/lock-", b"me", OPEN, CreateFlags.EPHEMERAL | CreateFlags.SEQUENTIAL),
        "00000037 00000001 00000001 00000006 2f6c6f636b2d 00000002 6d65"
        "00000001 0000001f 00000005 776f726c64 00000006 616e796f6e65 00000003",
        ReplyHeader(1, 2, 0),
        CreateReply(LOCK),
        "00000024 00000001 0000000000000002 00000000 00000010 2f6c6f636b2d30303030303030303030",
    ),
    (
        "15.3 getChildren",
        2,
        GetChildrenRequest("/", False),
        "0000000e 00000002 00000008 00000001 2f 00",
        ReplyHeader(2, 2, 0),
        GetChildrenReply(["lock-0000000000", "zookeeper"]),
        "00000034 00000002 0000000000000002 00000000 00000002"
        "0000000f 6c6f636b2d30303030303030303030 00000009 7a6f6f6b6565706572",
    ),
    (
        "15.4 exists, no node",
        3,
        ExistsRequest("/gone", True),
        "00000012 00000003 00000003 00000005 2f676f6e65 01",
        ReplyHeader(3, 2, -101),
        None,
        "00000010 00000003 0000000000000002 ffffff9b",
    ),
    (
        "15.5 exists",
        4,
        ExistsRequest(LOCK, True),
        "0000001d 00000004 00000003 00000010 2f6c6f636b2d30303030303030303030 01",
        ReplyHeader(4, 2, 0),
        StatReply(LOCK_STAT),
        "00000054 00000004 0000000000000002 00000000"
        "0000000000000002 0000000000000002 000001a1fa898892 000001a1fa898892 00000000 00000000 00000000"
        "0100001e14ca0000 00000002 00000000 0000000000000002",
    ),
    (
        "15.6 delete",
        5,
        DeleteRequest(LOCK, -1),
        "00000020 00000005 00000002 00000010 2f6c6f636b2d30303030303030303030 ffffffff",
        ReplyHeader(5, 3, 0),
        Nothing(),
        "00000010 00000005 0000000000000003 00000000",
    ),
    (
        "15.7 ping",
        -2,
        PingRequest(),
        "00000008 fffffffe 0000000b",
        ReplyHeader(-2, 3, 0),
        Nothing(),
        "00000010 fffffffe 0000000000000003 00000000",
    ),
    (
        "15.8 closeSession",
        14,
        CloseSessionRequest(),
        "00000008 0000000e fffffff5",
        ReplyHeader(14, 7, 0),
        Nothing(),
        "00000010 0000000e 0000000000000007 00000000",
    ),
    (
        "15.12 setWatches",
        -8,
        SetWatchesRequest(2, [LOCK], ["/gone"], ["/"]),
        "0000003e fffffff8 00000065 0000000000000002 00000001 00000010 2f6c6f636b2d30303030303030303030"
        "00000001 00000005 2f676f6e65 00000001 00000001 2f",
        ReplyHeader(-8, 5, 0),
        Nothing(),
        "00000010 fffffff8 0000000000000005 00000000",
    ),
    (
        "15.13 createContainer",
        8,
        CreateContainerRequest("/c", b"", OPEN, CreateFlags.CONTAINER),
        "00000031 00000008 00000013 00000002 2f63 00000000"
        "00000001 0000001f 00000005 776f726c64 00000006 616e796f6e65 00000004",
        ReplyHeader(8, 6, 0),
        Create2Reply("/c", C_STAT),
        "0000005a 00000008 0000000000000006 00000000 00000002 2f63"
        "0000000000000006 0000000000000006 000001a1fa8988b4 000001a1fa8988b4 00000000 00000000 00000000"
        "0000000000000000 00000000 00000000 0000000000000006",
    ),
    (
        "15.11 auth",
        -4,
        AuthRequest(0, "digest", b"bob:pw"),
        "00000020 fffffffc 00000064 00000000 00000006 646967657374 00000006 626f623a7077",
        ReplyHeader(-4, 0, 0),
        Nothing(),
        "00000010 fffffffc 0000000000000000 00000000",
    ),
    (
        "15.13 addWatch",
        9,
        AddWatchRequest("/c", AddWatchMode.PERSISTENT_RECURSIVE),
        "00000012 00000009 0000006a 00000002 2f63 00000001",
        ReplyHeader(9, 6, 0),
        AddWatchReply(0),
        "00000014 00000009 0000000000000006 00000000 00000000",
    ),
    (
        "15.14 getEphemerals",
        10,
        GetEphemeralsRequest("/"),
        "0000000d 0000000a 00000067 00000001 2f",
        ReplyHeader(10, 6, 0),
        GetEphemeralsReply([]),
        "00000014 0000000a 0000000000000006 00000000 00000000",
    ),
    (
        "15.14 whoAmI",
        11,
        WhoAmIRequest(),
        "00000008 0000000b 0000006b",
        ReplyHeader(11, 6, 0),
        WhoAmIReply([ClientInfoRecord("digest", "bob"), ClientInfoRecord("ip", "127.0.0.1")]),
        "00000038 0000000b 0000000000000006 00000000 00000002"
        "00000006 646967657374 00000003 626f62 00000002 6970 00000009 3132372e302e302e31",
    ),
    (
        "15.14 getACL",
        12,
        GetACLRequest("/c"),
        "0000000e 0000000c 00000006 00000002 2f63",
        ReplyHeader(12, 6, 0),
        GetACLReply(OPEN, C_STAT),
        "0000006f 0000000c 0000000000000006 00000000"
        "00000001 0000001f 00000005 776f726c64 00000006 616e796f6e65"
        "0000000000000006 0000000000000006 000001a1fa8988b4 000001a1fa8988b4 00000000 00000000 00000000"
        "0000000000000000 00000000 00000000 0000000000000006",
    ),
    (
        "15.14 sync",
        13,
        SyncRequest("/c"),
        "0000000e 0000000d 00000009 00000002 2f63",
        ReplyHeader(13, 6, 0),
        SyncReply("/c"),
        "00000016 0000000d 0000000000000006 00000000 00000002 2f63",
    ),
]


@pytest.mark.parametrize(("xid", "request_", "sent"), [row[1:4] for row in WORKED], ids=[row[0] for row in WORKED])
def test_a_worked_request_is_encoded_byte_for_byte(xid: int, request_: Request[Any], sent: str) -> None:
    body = RequestHeader(xid, request_.opcode).encode() + request_.encode()
    assert len(body).to_bytes(4, "big") + body == bytes.fromhex(sent)
    assert type(request_).decode(body, 8) == (request_, len(body))


@pytest.mark.parametrize(
    ("request_", "header", "reply", "received"), [row[2:3] + row[4:] for row in WORKED], ids=[row[0] for row in WORKED]
)
def test_a_worked_reply_is_decoded_byte_for_byte(
    request_: Request[Any], header: ReplyHeader, reply: Record | None, received: str
) -> None:
    raw = bytes.fromhex(received)
    assert int.from_bytes(raw[:4], "big") == len(raw) - 4
    assert ReplyHeader.decode(raw, 4) == (header, 20)
    if reply is None:
        assert len(raw) == 20
    else:
        assert request_.reply.decode(raw, 20) == (reply, len(raw))
        assert header.encode() + reply.encode() == raw[4:]


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
def test_the_other_requests_have_their_fields_in_order(request_: Request[Any], hexadecimal: str) -> None:
    """PROTOCOL 4.3, 4.4"""
    assert request_.encode() == bytes.fromhex(hexadecimal)


def test_null_data_is_not_empty_data() -> None:
    """PROTOCOL 4.3: a node remembers the difference."""
    stat = C_STAT.encode()
    assert GetDataReply.decode(b"\xff\xff\xff\xff" + stat, 0)[0] == GetDataReply(None, C_STAT)
    assert GetDataReply.decode(b"\0\0\0\0" + stat, 0)[0] == GetDataReply(b"", C_STAT)
