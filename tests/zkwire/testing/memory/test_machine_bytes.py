"""Requests as bytes and the exact bytes of their replies, in one session; and bytes that are no valid request."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.machine_client import OPEN, Client, World
from zkwire.testing.memory.machine import Machine
from zkwire.testing.memory.sessions import password_of
from zkwire.wire.records import ConnectRequest
from zkwire.wire.requests import CreateRequest, GetDataRequest

STARTED = 0x1E14CA  # ms: gives the session id of the recording
SESSION = "0100001e14ca0000"
TIME = 0x01A1FA898892  # ms since 1970
T = "000001a1fa898892"
LOCK = "00000010 2f6c6f636b2d30303030303030303030"
OPEN_ENTRY = "00000001 0000001f 00000005 776f726c64 00000006 616e796f6e65"
STAT_C = f"0000000000000006 0000000000000006 {T} {T} 00000000 00000000 00000000 0000000000000000 00000000 00000000"
STAT_M = f"0000000000000004 0000000000000004 {T} {T} 00000001 00000000 00000000 0000000000000000 00000002 00000000"

# What is sent, without its length, and the frames that come back. Event zxids are those of servers from 3.9 on.
WORKED = [
    (
        "15.1 connect",
        f"00000000 0000000000000000 00002710 0000000000000000 00000010 {'00' * 16} 00",
        [f"00000025 00000000 00002710 {SESSION} 00000010 2445313ee1f9dd80a256706e92b7a4e2 00"],
    ),
    (
        "15.2 create",
        f"00000001 00000001 00000006 2f6c6f636b2d 00000002 6d65 {OPEN_ENTRY} 00000003",
        [f"00000024 00000001 0000000000000002 00000000 {LOCK}"],
    ),
    (
        "15.3 getChildren",
        "00000002 00000008 00000001 2f 00",
        [
            "00000034 00000002 0000000000000002 00000000 00000002"
            "0000000f 6c6f636b2d30303030303030303030 00000009 7a6f6f6b6565706572"
        ],
    ),
    (
        "15.4 exists, no node",
        "00000003 00000003 00000005 2f676f6e65 01",
        ["00000010 00000003 0000000000000002 ffffff9b"],
    ),
    (
        "15.5 exists",
        f"00000004 00000003 {LOCK} 01",
        [
            f"00000054 00000004 0000000000000002 00000000 0000000000000002 0000000000000002 {T} {T}"
            f"00000000 00000000 00000000 {SESSION} 00000002 00000000 0000000000000002"
        ],
    ),
    (
        "15.6 delete",
        f"00000005 00000002 {LOCK} ffffffff",
        [
            f"0000002c ffffffff 0000000000000003 00000000 00000002 00000003 {LOCK}",
            "00000010 00000005 0000000000000003 00000000",
        ],
    ),
    ("15.7 ping", "fffffffe 0000000b", ["00000010 fffffffe 0000000000000003 00000000"]),
    (
        "15.9 multi",
        f"00000006 0000000e 00000001 00 ffffffff 00000002 2f6d 00000001 31 {OPEN_ENTRY} 00000000"
        "0000000d 00 ffffffff 00000002 2f6d 00000000"
        "00000005 00 ffffffff 00000002 2f6d 00000002 3232 00000000"
        "00000002 00 ffffffff 00000002 2f6d 00000001 ffffffff 01 ffffffff",
        [
            "00000087 00000006 0000000000000004 00000000 00000001 00 00000000 00000002 2f6d 0000000d 00 00000000"
            f"00000005 00 00000000 {STAT_M} 0000000000000004 00000002 00 00000000 ffffffff 01 ffffffff"
        ],
    ),
    (
        "15.10 multi that fails",
        f"00000007 0000000e 00000001 00 ffffffff 00000002 2f6d ffffffff {OPEN_ENTRY} 00000000"
        "0000000d 00 ffffffff 00000005 2f6e6f6e65 00000000 00000002 00 ffffffff 00000002 2f6d ffffffff"
        "ffffffff 01 ffffffff",
        [
            "00000040 00000007 0000000000000005 00000000 ffffffff 00 00000000 00000000"
            "ffffffff 00 ffffff9b ffffff9b ffffffff 00 fffffffe fffffffe ffffffff 01 ffffffff"
        ],
    ),
    (
        "15.11 auth",
        "fffffffc 00000064 00000000 00000006 646967657374 00000006 626f623a7077",
        ["00000010 fffffffc 0000000000000000 00000000"],
    ),
    (
        "15.12 setWatches",
        f"fffffff8 00000065 0000000000000002 00000001 {LOCK} 00000001 00000005 2f676f6e65 00000001 00000001 2f",
        [
            f"0000002c ffffffff ffffffffffffffff 00000000 00000002 00000003 {LOCK}",
            "0000001d ffffffff ffffffffffffffff 00000000 00000004 00000003 00000001 2f",
            "00000010 fffffff8 0000000000000005 00000000",
        ],
    ),
    (
        "15.13 createContainer",
        f"00000008 00000013 00000002 2f63 00000000 {OPEN_ENTRY} 00000004",
        [f"0000005a 00000008 0000000000000006 00000000 00000002 2f63 {STAT_C} 0000000000000006"],
    ),
    (
        "15.13 addWatch",
        "00000009 0000006a 00000002 2f63 00000001",
        ["00000014 00000009 0000000000000006 00000000 00000000"],
    ),
    (
        "15.14 getEphemerals",
        "0000000a 00000067 00000001 2f",
        ["00000014 0000000a 0000000000000006 00000000 00000000"],
    ),
    (
        "15.14 whoAmI",
        "0000000b 0000006b",
        [
            "00000038 0000000b 0000000000000006 00000000 00000002"
            "00000006 646967657374 00000003 626f62 00000002 6970 00000009 3132372e302e302e31"
        ],
    ),
    (
        "15.14 getACL",
        "0000000c 00000006 00000002 2f63",
        [f"0000006f 0000000c 0000000000000006 00000000 {OPEN_ENTRY} {STAT_C} 0000000000000006"],
    ),
    (
        "15.14 sync",
        "0000000d 00000009 00000002 2f63",
        ["00000016 0000000d 0000000000000006 00000000 00000002 2f63"],
    ),
    ("15.8 closeSession", "0000000e fffffff5", ["00000010 0000000e 0000000000000007 00000000"]),
]


def test_the_worked_bytes_of_the_protocol() -> None:
    machine = Machine(now=STARTED / 1000, wall=TIME / 1000)
    connection = machine.open("127.0.0.1", 40_000, STARTED / 1000)
    for name, sent, received in WORKED:
        machine.receive(connection, bytes.fromhex(sent), STARTED / 1000)
        assert [frame.hex() for frame in connection.outgoing] == [bytes.fromhex(frame).hex() for frame in received], (
            name
        )
        assert machine.take_dirty() == [connection], name
        connection.outgoing.clear()
    assert connection.closing
    assert not machine.connections
    assert not machine.sessions.by_id


def test_a_password_is_derived_from_the_sessions_id() -> None:
    """Every server derives the same password from a session id."""
    assert password_of(0x0100000AB02B0000).hex() == "57c0c7f99840a45f8ddc184fa1de5a31"


# -- bytes that are no request ------------------------------------------------------------------------


@pytest.mark.parametrize("size", range(8))
def test_a_payload_that_is_too_short_for_a_header_closes(size: int) -> None:
    client = World().client()
    assert client.send(bytes(size)) == []
    assert client.is_closed


@pytest.mark.parametrize("first", [b"", b"ruok", bytes(27), bytes(24) + b"\x7f\xff\xff\xff" + bytes(17)])
def test_a_first_frame_that_is_no_connect_request_closes(first: bytes) -> None:
    client = Client(World())
    assert client.send(first) == []
    assert client.is_closed


def test_a_client_of_old_gets_an_answer_without_the_flag() -> None:
    """Clients before 3.4 send no read_only flag."""
    client = Client(World())
    (answer,) = client.send(ConnectRequest(0, 0, 10_000, 0, bytes(16), False).encode()[:-1])
    assert len(answer) == 36


@pytest.mark.parametrize("opcode", [0, -1, 10, 13, 20, 23, 99, 108, -10, -12, 2**31 - 1, -(2**31)])
def test_an_unknown_opcode_is_answered_and_closes(opcode: int) -> None:
    """A lone check is unknown too, on servers from 3.9.3 on."""
    world = World()
    client = world.client()
    answer = client.send((-2).to_bytes(4, "big", signed=True) + opcode.to_bytes(4, "big", signed=True))
    assert answer == [bytes.fromhex("fffffffe ffffffffffffffff fffffffa")]
    assert client.is_closed
    assert world.machine.sessions.by_id, "the session survives"
    assert client.send(bytes(8)) == [], "what comes behind is dropped"


TRUNCATED = [1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 14, 15, 16, 17, 18, 19, 21, 22, 101, 103, 104, 105, 106]


@pytest.mark.parametrize("opcode", TRUNCATED)
def test_a_truncated_record_is_a_marshalling_error(opcode: int) -> None:
    """The connection stays open, and only a multi takes a zxid."""
    world = World()
    client = world.client()
    (frame,) = client.send(bytes.fromhex(f"00000007 {opcode:08x} 0000"))
    zxid = 2 if opcode == 14 else 1
    assert frame == bytes.fromhex(f"00000007 {zxid:016x} fffffffb")
    assert not client.is_closed


@pytest.mark.parametrize("opcode", [100, 102])
def test_a_truncated_auth_or_sasl_packet_closes_without_a_word(opcode: int) -> None:
    client = World().client()
    assert client.send(bytes.fromhex(f"00000007 {opcode:08x} 00")) == []
    assert client.is_closed


def test_a_server_without_sasl_answers_with_a_null_token() -> None:
    client = World().client()
    assert client.send(bytes.fromhex("00000007 00000066 00000000")) == [
        bytes.fromhex("00000007 0000000000000000 00000000 ffffffff")
    ]


def test_bytes_behind_a_record_are_not_looked_at() -> None:
    client = World().client()
    client.create("/a", b"1")
    answer = client.ask(GetDataRequest("/a", False), body=GetDataRequest("/a", False).encode() + b"more")
    assert answer.reply.data == b"1"


@pytest.mark.parametrize(("path", "err"), [("", 0), (None, -5)])
def test_an_empty_path_is_the_root_for_a_read_and_a_null_one_is_an_error(path: str, err: int) -> None:
    client = World().client()
    assert client.ask(GetDataRequest(path, False)).err == err


def test_a_null_path_in_a_write_takes_a_zxid() -> None:
    client = World().client()
    null: str = None  # type: ignore[assignment]
    answer = client.ask(CreateRequest(null, b"", OPEN, 0))
    assert (answer.err, answer.zxid) == (-5, 2)
    answer = client.ask(CreateRequest(null, b"", OPEN, 9))
    assert (answer.err, answer.zxid) == (-8, 3)


@given(st.lists(st.binary(max_size=60), max_size=8), st.sampled_from([*TRUNCATED, 11, 100, 102, 107, -11, 13, 50]))
def test_noise_never_raises_and_every_frame_that_comes_back_is_whole(noise: list[bytes], opcode: int) -> None:
    world = World()
    client = world.client()
    for body in noise:
        client.send(bytes(4) + opcode.to_bytes(4, "big", signed=True) + body)
        client.send(body)
        if client.is_closed:
            client = world.client()
    assert world.client().create("/still-there").err == 0
