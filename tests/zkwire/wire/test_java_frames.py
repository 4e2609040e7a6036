"""zkwire sends the same bytes as Apache's Java client, except for xids, zxids and what identifies the session."""

import pytest

from tests.captures.java.record import load
from zkwire.wire import requests as r
from zkwire.wire.jute import Record
from zkwire.wire.multi import MultiReadRequest, MultiRequest
from zkwire.wire.records import ACL, OPEN_ACL, ConnectRequest, RequestHeader

JAVA = load()

ACCESS = [ACL(3, "digest", "bob:cq6eTOxUOJwfRYn8EPGDQQAZVzE="), ACL(31, "world", "anyone")]
PERSISTENT, EPHEMERAL, SEQUENTIAL, EPHEMERAL_SEQUENTIAL, CONTAINER, TTL, SEQUENTIAL_TTL = range(7)
CHILDREN, DATA, ANY = 1, 2, 3
MEMBER = "server.9=127.0.0.1:1:2;127.0.0.1:3"
CONNECT = ConnectRequest(0, 0, 10_000, 0, bytes(16), False)
AUTH = r.AuthRequest(0, "digest", b"bob:secret")

# What each call of Calls.java should send, except for what `without_session` removes.
OURS: dict[str, list[Record]] = {
    "connect": [CONNECT],
    "create": [r.CreateRequest("/java", b"data", OPEN_ACL, PERSISTENT)],
    "create ephemeral": [r.CreateRequest("/java/ephemeral", b"data", OPEN_ACL, EPHEMERAL)],
    "create sequential": [r.CreateRequest("/java/s-", b"data", OPEN_ACL, SEQUENTIAL)],
    "create ephemeral sequential": [r.CreateRequest("/java/es-", b"data", OPEN_ACL, EPHEMERAL_SEQUENTIAL)],
    "create empty": [r.CreateRequest("/java/empty", b"", OPEN_ACL, PERSISTENT)],
    "create container": [r.CreateContainerRequest("/java/container", b"data", OPEN_ACL, CONTAINER)],
    "create with ttl": [r.CreateTTLRequest("/java/ttl", b"data", OPEN_ACL, TTL, 60_000)],
    "create sequential with ttl": [r.CreateTTLRequest("/java/sttl-", b"data", OPEN_ACL, SEQUENTIAL_TTL, 60_000)],
    "create and stat": [r.Create2Request("/java/stat", b"data", OPEN_ACL, PERSISTENT)],
    "create with acl": [r.CreateRequest("/java/acl", b"data", ACCESS, PERSISTENT)],
    "exists": [r.ExistsRequest("/java", False)],
    "exists and watch": [r.ExistsRequest("/java/absent", True)],
    "get": [r.GetDataRequest("/java", False)],
    "get and watch": [r.GetDataRequest("/java", True)],
    "get children": [r.GetChildrenRequest("/java", False)],
    "get children and watch": [r.GetChildrenRequest("/java", True)],
    "get children and stat": [r.GetChildren2Request("/java", False)],
    "set": [r.SetDataRequest("/java/stat", b"new", -1)],
    "set a version": [r.SetDataRequest("/java/stat", b"data", 1)],
    "get acl": [r.GetACLRequest("/java")],
    "set acl": [r.SetACLRequest("/java/acl", ACCESS, 0)],
    "delete": [r.DeleteRequest("/java/empty", -1)],
    "delete a version": [r.DeleteRequest("/java/stat", 7)],
    "sync": [r.SyncRequest("/java")],
    "count descendants": [r.GetAllChildrenNumberRequest("/java")],
    "get ephemerals": [r.GetEphemeralsRequest("/")],
    "get ephemerals below": [r.GetEphemeralsRequest("/java")],
    "whoami": [r.WhoAmIRequest()],
    "transaction": [
        MultiRequest(
            [
                r.CheckVersionRequest("/java", 0),
                r.CreateRequest("/java/t", b"data", OPEN_ACL, EPHEMERAL),
                r.CreateContainerRequest("/java/tc", b"data", OPEN_ACL, CONTAINER),
                r.CreateTTLRequest("/java/tt", b"data", OPEN_ACL, TTL, 60_000),
                r.SetDataRequest("/java", b"data", -1),
                r.DeleteRequest("/java/t", 0),
            ]
        )
    ],
    "get many": [MultiReadRequest([r.GetDataRequest("/java", False), r.GetChildrenRequest("/java/absent", False)])],
    "add auth": [AUTH],
    "get config": [r.GetDataRequest("/zookeeper/config", False)],
    "reconfigure a member": [r.ReconfigRequest(MEMBER, "8,7", None, -1)],
    "reconfigure the whole": [r.ReconfigRequest(None, None, "server.1=127.0.0.1:1:2;127.0.0.1:3", 0x100000000)],
    "watch for good": [r.AddWatchRequest("/java/one", 0)],
    "watch a tree for good": [r.AddWatchRequest("/java/tree", 1)],
    "watch another for good": [r.AddWatchRequest("/java/another", 0)],
    "remove all watches": [r.RemoveWatchesRequest("/java/one", ANY)],
    # The client removes one of two watchers of a node: it only asks the server whether the remaining watch is there.
    "remove one of two watches": [r.AddWatchRequest("/java/another", 0), r.CheckWatchesRequest("/java/another", ANY)],
    "remove data watches": [r.RemoveWatchesRequest("/java", DATA)],
    "remove children watches": [r.RemoveWatchesRequest("/java", CHILDREN)],
    "ping": [r.PingRequest()],
    "close": [r.CloseSessionRequest()],
    "reconnect": [CONNECT, AUTH, r.SetWatchesRequest(0, ["/java"], ["/java/absent"], ["/java"])],
    "reconnect with persistent watches": [
        CONNECT,
        AUTH,
        # Within a list Java's order comes from a hash table.
        r.SetWatches2Request(0, ["/java"], ["/java/absent"], ["/java"], ["/java/another", "/java/one"], ["/java/tree"]),
    ],
}

SET_WATCHES = (r.SetWatchesRequest.opcode, r.SetWatches2Request.opcode)


def without_session(frame: bytes, *, first: bool) -> bytes:
    """Return the frame of a client with zeros in place of what differs from session to session.

    This includes xids that count requests, and the xid of SetWatches: the Java client names it -8 but counts it.
    """
    if first:  # the newest zxid; the session's id and password
        return frame[:4] + bytes(8) + frame[12:16] + bytes(8) + frame[24:28] + bytes(16) + frame[44:]
    xid, opcode = (int.from_bytes(frame[at : at + 4], "big", signed=True) for at in (0, 4))
    if opcode in SET_WATCHES:  # the newest zxid
        return bytes(4) + frame[4:8] + bytes(8) + frame[16:]
    return (bytes(4) if xid > 0 else frame[:4]) + frame[4:]


def frame_of(request: Record) -> bytes:
    if not isinstance(request, r.Request):
        return request.encode()
    xid = 0 if request.fixed_xid is None or request.opcode in SET_WATCHES else request.fixed_xid
    return RequestHeader(xid, request.opcode).encode() + request.encode()


def test_the_java_program_and_this_test_have_the_same_calls() -> None:
    assert set(OURS) == set(JAVA)


@pytest.mark.parametrize("call", JAVA)
def test_a_request_is_encoded_as_the_java_client_does(call: str) -> None:
    begins = call == "connect" or call.startswith("reconnect")
    theirs = [without_session(frame, first=begins and at == 0) for at, frame in enumerate(JAVA[call])]
    assert [frame_of(request) for request in OURS[call]] == theirs


@pytest.mark.parametrize("call", JAVA)
def test_a_request_of_the_java_client_is_decoded_and_encoded_to_the_same_bytes(call: str) -> None:
    for request, frame in zip(OURS[call], JAVA[call], strict=True):
        start = 8 if isinstance(request, r.Request) else 0
        read, end = type(request).decode(frame, start)
        assert end == len(frame)
        assert read.encode() == frame[start:]
