"""Requests: the opcode and the reply of each class, its declaration, its hints, and the order of its fields.

The whole frames of most requests and replies are compared with recorded ones: of the Java client in
tests/zkwire/wire/test_java.py, of a real server in tests/captures.
"""

import types
from typing import Any, Generic, TypeVar

import pytest

from zkwire.wire import multi
from zkwire.wire import requests as r
from zkwire.wire.certainty import AckLevel
from zkwire.wire.jute import Record
from zkwire.wire.records import ACL, OPEN_ACL, PING_XID, Stat

T = TypeVar("T")
GENERIC: Any = Generic[T]  # type: ignore[index]

# Each request with its opcode, its reply, whether it may be repeated because it changes nothing, and the first version
# of ZooKeeper that knows it, if 3.4 does not.
TABLE: dict[type[r.Request[Any]], tuple[int, type[Record], bool, str]] = {
    r.CreateRequest: (1, r.CreateReply, False, ""),
    r.DeleteRequest: (2, r.Nothing, False, ""),
    r.ExistsRequest: (3, r.StatReply, True, ""),
    r.GetDataRequest: (4, r.GetDataReply, True, ""),
    r.SetDataRequest: (5, r.StatReply, False, ""),
    r.GetACLRequest: (6, r.GetACLReply, True, ""),
    r.SetACLRequest: (7, r.StatReply, False, ""),
    r.GetChildrenRequest: (8, r.GetChildrenReply, True, ""),
    r.SyncRequest: (9, r.SyncReply, True, ""),
    r.PingRequest: (11, r.Nothing, True, ""),
    r.GetChildren2Request: (12, r.GetChildren2Reply, True, ""),
    r.CheckVersionRequest: (13, r.Nothing, False, ""),
    multi.MultiRequest: (14, multi.MultiReply, False, ""),
    r.Create2Request: (15, r.Create2Reply, False, "3.5.0"),
    r.ReconfigRequest: (16, r.GetDataReply, False, "3.5.0"),
    r.CheckWatchesRequest: (17, r.Nothing, True, "3.5.0"),
    r.RemoveWatchesRequest: (18, r.Nothing, False, "3.5.0"),
    r.CreateContainerRequest: (19, r.Create2Reply, False, "3.5.1"),
    r.CreateTTLRequest: (21, r.Create2Reply, False, "3.5.3"),
    multi.MultiReadRequest: (22, multi.MultiReply, True, "3.6.0"),
    r.AuthRequest: (100, r.Nothing, False, ""),
    r.SetWatchesRequest: (101, r.Nothing, False, ""),
    r.SaslRequest: (102, r.SaslReply, False, ""),
    r.GetEphemeralsRequest: (103, r.GetEphemeralsReply, True, "3.6.0"),
    r.GetAllChildrenNumberRequest: (104, r.GetAllChildrenNumberReply, True, "3.6.0"),
    r.SetWatches2Request: (105, r.Nothing, False, "3.6.0"),
    r.AddWatchRequest: (106, r.AddWatchReply, True, "3.6.0"),
    r.WhoAmIRequest: (107, r.WhoAmIReply, True, "3.7.0"),
    r.CloseSessionRequest: (-11, r.Nothing, True, ""),
}

each_request = pytest.mark.parametrize("cls", TABLE, ids=lambda cls: cls.__name__)


def test_the_table_names_all_requests() -> None:
    found = {
        value
        for module in (r, multi)
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, r.Request)
        and value is not r.Request
        and not value.is_recovered
    }
    assert set(TABLE) == found
    assert len({cls.opcode for cls in found}) == len(found)


# The requests that a quorum must commit.
QUORUM = {
    r.CreateRequest,
    r.Create2Request,
    r.CreateContainerRequest,
    r.CreateTTLRequest,
    r.DeleteRequest,
    r.SetDataRequest,
    r.SetACLRequest,
    r.ReconfigRequest,
    multi.MultiRequest,
}


@each_request
def test_each_request_is_declared_as_the_table_says(cls: type[r.Request[Any]]) -> None:
    """Pitfall 60: a write must not be repeated.  Pitfall 68: a container has an opcode of its own.

    Only a write proves a quorum, and a sync the leader; auth and sasl are answered out of order.
    """
    assert (cls.opcode, cls.reply, cls.repeatable) == TABLE[cls][:3]
    ack_level = AckLevel.QUORUM if cls in QUORUM else AckLevel.LEADER if cls is r.SyncRequest else AckLevel.SERVER
    assert cls.ack_level is ack_level
    assert cls.is_answered_at_once is (cls in (r.AuthRequest, r.SaslRequest))
    assert cls.fixed_xid == (PING_XID if cls is r.PingRequest else -4 if cls is r.AuthRequest else None)
    hint = cls.hints.get(-6, "")
    version = TABLE[cls][3]
    assert hint.startswith(f"it needs ZooKeeper {version} or newer" if version else "")
    assert bool(hint) is bool(version)


def test_the_subject_of_a_request_is_its_path() -> None:
    assert r.DeleteRequest("/a", -1).subject == "/a"
    assert r.PingRequest().subject is None
    assert r.SetWatchesRequest(0, [], [], []).subject is None
    assert multi.MultiRequest([r.DeleteRequest("/a", -1)]).subject is None


def test_flags_and_watcher_types_have_the_numbers_of_the_protocol() -> None:
    assert {flag.name: flag.value for flag in r.CreateFlags} == {"EPHEMERAL": 1, "SEQUENTIAL": 2, "CONTAINER": 4}
    assert int(r.CreateFlags.EPHEMERAL | r.CreateFlags.SEQUENTIAL) == 3
    assert {kind.name: kind.value for kind in r.WatcherType} == {
        "CHILDREN": 1,
        "DATA": 2,
        "ANY": 3,
        "PERSISTENT": 4,
        "PERSISTENT_RECURSIVE": 5,
    }


# -- declarations -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bases", "options", "message"),
    [
        ((r.Request[r.Nothing],), {}, "must name its opcode"),
        ((r.Request,), {"opcode": 99}, "must name the record that answers it"),
        ((r.Request[str],), {"opcode": 99}, "must name the record that answers it"),  # type: ignore[type-var]
        ((r.Request[r.Nothing], GENERIC), {"opcode": 99}, "must name the record that answers it"),
    ],
)
def test_a_request_without_an_opcode_and_one_reply_is_refused_when_the_class_is_made(
    bases: tuple[Any, ...], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(TypeError, match=f"ForgottenRequest {message}"):
        types.new_class("ForgottenRequest", bases, options)


# -- hints: what the caller can do about a refusal -------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "code", "hint"),
    [
        (r.CreateTTLRequest("/a", b"", [], 5, 1), -6, "zookeeper.extendedTypesEnabled=true"),
        (r.ReconfigRequest(None, None, None, -1), -6, "an ensemble"),
        (multi.MultiReadRequest([]), -6, "Client.pipeline"),
        (r.DeleteRequest("/", -1), -8, "the root and /zookeeper cannot be deleted"),
        (r.ReconfigRequest(None, None, None, -1), -8, "server.4=host:port:port:role;port"),
        (r.Create2Request("/a", b"", [], 0), -8, ""),
        (r.DeleteRequest("/a", -1), -6, ""),
    ],
)
def test_a_refusal_says_what_the_caller_can_do(request_: r.Request[Any], code: int, hint: str) -> None:
    error = request_.refusal(code, "zk1:2181")
    assert hint in str(error)
    assert bool(error.hint) is bool(hint)
    assert (error.code, error.path, error.server) == (code, request_.subject, "zk1:2181")
    assert error.operation == request_.operation


# -- fields ---------------------------------------------------------------------------------------------

OPEN = list(OPEN_ACL)
STAT = Stat(*range(11))


@pytest.mark.parametrize(
    ("request_", "hexadecimal"),
    [
        (r.SetDataRequest("/m", None, -1), "00000002 2f6d ffffffff ffffffff"),
        (r.CheckWatchesRequest("/m", r.WatcherType.PERSISTENT), "00000002 2f6d 00000004"),
        (r.GetEphemeralsRequest(None), "ffffffff"),
        (r.SaslRequest(None), "ffffffff"),
        (
            r.Create2Request("/m", None, [ACL(1, "ip", "::1"), *OPEN], 0),
            "00000002 2f6d ffffffff 00000002 00000001 00000002 6970 00000003 3a3a31"
            "0000001f 00000005 776f726c64 00000006 616e796f6e65 00000000",
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_request_that_the_java_client_did_not_send_has_its_fields_in_the_order_of_the_protocol(
    request_: r.Request[Any], hexadecimal: str
) -> None:
    encoded = bytes.fromhex(hexadecimal)
    assert request_.encode() == encoded
    assert type(request_).decode(encoded, 0) == (request_, len(encoded))


def test_null_data_is_not_empty_data() -> None:
    """A node stores which of the two it was given."""
    assert r.GetDataReply.decode(b"\xff\xff\xff\xff" + STAT.encode(), 0)[0] == r.GetDataReply(None, STAT)
    assert r.GetDataReply.decode(b"\0\0\0\0" + STAT.encode(), 0)[0] == r.GetDataReply(b"", STAT)
