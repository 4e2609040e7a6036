"""The shared records and their worked bytes of PROTOCOL 15."""

import pytest

from zkwire.wire.records import (
    ACL,
    CREATOR_ALL_ACL,
    EVENT_XID,
    OPEN_ACL,
    PING_XID,
    READ_ONLY_ACL,
    ConnectRequest,
    ConnectResponse,
    MultiHeader,
    Perms,
    ReplyHeader,
    RequestHeader,
    Stat,
    WatcherEvent,
)

SESSION = 0x0100001E14CA0000
PASSWORD = bytes.fromhex("2445313ee1f9dd80a256706e92b7a4e2")


def frame(text: str) -> bytes:
    """The payload of one frame written in hexadecimal, its length in front."""
    raw = bytes.fromhex(text)
    assert int.from_bytes(raw[:4], "big") == len(raw) - 4
    return raw[4:]


# 15.1, and the refusal behind it
CONNECT = frame(
    "0000002d 00000000 0000000000000000 00002710 0000000000000000 00000010 00000000000000000000000000000000 00"
)
ACCEPTED = frame("00000025 00000000 00002710 0100001e14ca0000 00000010 2445313ee1f9dd80a256706e92b7a4e2 00")
REFUSED = frame("00000025 00000000 00000000 0000000000000000 00000010 00000000000000000000000000000000 00")
# 15.5
STAT = bytes.fromhex(
    "0000000000000002 0000000000000002 000001a1fa898892 000001a1fa898892 00000000 00000000 00000000"
    "0100001e14ca0000 00000002 00000000 0000000000000002"
)


def test_a_connect_request_has_45_bytes() -> None:
    """15.1"""
    request = ConnectRequest(0, 0, 10_000, 0, bytes(16), False)
    assert request.encode() == CONNECT
    assert len(CONNECT) == 45
    assert ConnectRequest.decode(CONNECT, 0) == (request, 45)


def test_a_resume_and_a_read_only_client_stand_in_the_connect_request() -> None:
    request = ConnectRequest(0, 0x1_0000_0002, 4000, -2, PASSWORD, True)
    assert request.encode() == bytes.fromhex(
        "00000000 0000000100000002 00000fa0 fffffffffffffffe 00000010 2445313ee1f9dd80a256706e92b7a4e2 01"
    )


def test_a_connect_response_is_read_with_and_without_its_last_byte() -> None:
    """15.1; PROTOCOL 2.3: servers before 3.4 send 36 bytes."""
    response = ConnectResponse(0, 10_000, SESSION, PASSWORD)
    assert ConnectResponse.decode(ACCEPTED, 0) == (response, 36)
    assert ConnectResponse.decode(ACCEPTED[:36], 0) == (response, 36)
    assert response.encode() == ACCEPTED[:36]


def test_a_refusal_has_no_timeout_and_no_session() -> None:
    """15.1"""
    assert ConnectResponse.decode(REFUSED, 0)[0] == ConnectResponse(0, 0, 0, bytes(16))


def test_a_stat_has_68_bytes_in_the_order_of_the_protocol() -> None:
    """15.5"""
    stat = Stat(2, 2, 0x01A1FA898892, 0x01A1FA898892, 0, 0, 0, SESSION, 2, 0, 2)
    assert len(STAT) == 68
    assert Stat.decode(STAT, 0) == (stat, 68)
    assert stat.encode() == STAT
    assert stat.ephemeral_owner == SESSION
    assert stat.data_length == 2


def test_no_two_fields_of_a_stat_are_mixed_up() -> None:
    stat = Stat(
        czxid=1,
        mzxid=2,
        ctime=3,
        mtime=4,
        version=5,
        cversion=6,
        aversion=7,
        ephemeral_owner=8,
        data_length=9,
        num_children=10,
        pzxid=11,
    )
    assert stat.encode() == bytes.fromhex(
        "0000000000000001 0000000000000002 0000000000000003 0000000000000004 00000005 00000006 00000007"
        "0000000000000008 00000009 0000000a 000000000000000b"
    )


@pytest.mark.parametrize(
    ("header", "hexadecimal"),
    [
        (RequestHeader(1, 1), "00000001 00000001"),
        (RequestHeader(-2, 11), "fffffffe 0000000b"),
        (RequestHeader(14, -11), "0000000e fffffff5"),
    ],
)
def test_a_request_header_is_xid_and_opcode(header: RequestHeader, hexadecimal: str) -> None:
    """15.2, 15.7, 15.8"""
    assert header.encode() == bytes.fromhex(hexadecimal)
    assert RequestHeader.decode(bytes.fromhex(hexadecimal), 0) == (header, 8)


@pytest.mark.parametrize(
    ("header", "hexadecimal"),
    [
        (ReplyHeader(1, 2, 0), "00000001 0000000000000002 00000000"),
        (ReplyHeader(3, 2, -101), "00000003 0000000000000002 ffffff9b"),
        (ReplyHeader(-2, 3, 0), "fffffffe 0000000000000003 00000000"),
        (ReplyHeader(-4, 0, 0), "fffffffc 0000000000000000 00000000"),
        (ReplyHeader(-1, -1, 0), "ffffffff ffffffffffffffff 00000000"),
    ],
)
def test_a_reply_header_is_xid_zxid_and_error(header: ReplyHeader, hexadecimal: str) -> None:
    """15.2, 15.4, 15.7, 15.11, 15.6"""
    assert header.encode() == bytes.fromhex(hexadecimal)
    assert ReplyHeader.decode(bytes.fromhex(hexadecimal), 0) == (header, 16)


def test_an_event_is_type_state_and_path() -> None:
    """15.6"""
    raw = bytes.fromhex("00000002 00000003 00000010 2f6c6f636b2d30303030303030303030")
    event = WatcherEvent(2, 3, "/lock-0000000000")
    assert WatcherEvent.decode(raw, 0) == (event, len(raw))
    assert event.encode() == raw


def test_an_event_with_a_null_path_has_an_empty_one() -> None:
    """PROTOCOL 9.1: a state change carries none."""
    assert WatcherEvent.decode(bytes.fromhex("ffffffff 00000000 ffffffff"), 0)[0] == WatcherEvent(-1, 0, "")


def test_a_multi_header_has_nine_bytes() -> None:
    """15.9"""
    assert MultiHeader(1, False, -1).encode() == bytes.fromhex("00000001 00 ffffffff")
    assert MultiHeader(-1, True, -1).encode() == bytes.fromhex("ffffffff 01 ffffffff")
    assert MultiHeader.decode(bytes.fromhex("0000000d 00 00000000"), 0) == (MultiHeader(13, False, 0), 9)


@pytest.mark.parametrize(
    ("acl", "hexadecimal"),
    [
        (OPEN_ACL, "0000001f 00000005 776f726c64 00000006 616e796f6e65"),
        (READ_ONLY_ACL, "00000001 00000005 776f726c64 00000006 616e796f6e65"),
        (CREATOR_ALL_ACL, "0000001f 00000004 61757468 00000000"),
    ],
)
def test_the_ready_made_acls_have_one_entry_each(acl: tuple[ACL, ...], hexadecimal: str) -> None:
    """15.2 and PROTOCOL 1.2: one open ACL has 23 bytes."""
    (entry,) = acl
    assert entry.encode() == bytes.fromhex(hexadecimal)


def test_permissions_have_the_bits_of_the_protocol() -> None:
    assert [(perm.name, perm.value) for perm in Perms] == [
        ("READ", 1),
        ("WRITE", 2),
        ("CREATE", 4),
        ("DELETE", 8),
        ("ADMIN", 16),
    ]
    assert int(Perms.ALL) == 31
    assert ACL(Perms.READ | Perms.WRITE, "ip", "::1").encode()[:4] == b"\0\0\0\3"


def test_the_reserved_xids_are_those_of_the_protocol() -> None:
    assert (EVENT_XID, PING_XID) == (-1, -2)
