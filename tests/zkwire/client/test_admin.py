"""The administrative verbs with a scripted server, and the arguments of `reconfig`."""

import hashlib
import re
import struct
from functools import partial
from typing import Any

import pytest

import zkwire
from tests.support.rogue import GET_DATA, STAT, Request, Rogue, honest
from zkwire.client.admin import Configuration, digest_acl, reconfiguration
from zkwire.wire.records import ACL, Perms, Stat
from zkwire.wire.requests import ReconfigRequest, WhoAmIRequest

RECONFIG, WHO_AM_I = ReconfigRequest.opcode, WhoAmIRequest.opcode
LENGTH = struct.Struct(">i")
NULL = LENGTH.pack(-1)


@pytest.mark.parametrize("data", [None, b"", b"version=7\n"])
async def test_the_configuration_is_the_data_of_its_node_and_null_data_is_read_as_empty(data: bytes | None) -> None:
    answer = (NULL if data is None else LENGTH.pack(len(data)) + data) + STAT
    asked: list[bytes] = []

    def body(request: Request) -> bytes | None:
        if request.opcode not in (GET_DATA, RECONFIG):
            return LENGTH.pack(1) + LENGTH.pack(6) + b"digest" + NULL if request.opcode == WHO_AM_I else None
        asked.append(request.body)
        return answer

    async with Rogue(partial(honest, body=body)) as rogue, zkwire.connect(rogue.hosts + "/app") as zk:
        node, node_watch = await zk.get_and_watch("/a")
        assert (node.data, await zk.get("/a")) == (data or b"", node)
        config, watch = await zk.get_config_and_watch()
        assert (config.data, config.stat) == (data or b"", node.stat)
        assert await zk.get_config() == config
        assert await zk.whoami() == [zkwire.ClientInfo("digest", "")]  # null, too
        assert config.version == (7 if data else -1)
        assert await zk.reconfig(joining={4: "a:1:2;3"}, leaving=5, from_config=6) == config
        assert await zk.reconfig(members="server.4=a:1:2;3") == config
        watch.cancel()
        node_watch.cancel()
    path = "/zookeeper/config"
    name = LENGTH.pack(len(path)) + path.encode()
    app = LENGTH.pack(6) + b"/app/a"
    server = LENGTH.pack(16) + b"server.4=a:1:2;3"
    assert asked == [
        app + b"\1",
        app + b"\0",
        name + b"\1",
        name + b"\0",
        server + LENGTH.pack(1) + b"5" + NULL + struct.pack(">q", 6),
        NULL + NULL + server + struct.pack(">q", -1),
    ]


# -- the configuration and the arguments of reconfig ---------------------------------------------------------------

ZERO = Stat(*range(11))
ONE = "zk1:2888:3888:participant;0.0.0.0:2181"
TWO = "zk2:2888:3888:observer;0.0.0.0:2181"
DATA = f"server.1={ONE}\nserver.12={TWO}\nversion=100000003\n".encode()


@pytest.mark.parametrize("data", [DATA, b"", b"\n", b"group.1=1:2\nweight.1=1\n", b"\xff\xfe"])
def test_a_configuration_may_have_members_and_a_version(data: bytes) -> None:
    config = Configuration(data, ZERO)
    assert (config.members, config.version) == (({1: ONE, 12: TWO}, 0x100000003) if data is DATA else ({}, -1))


@pytest.mark.parametrize(
    ("said", "request_"),
    [
        ({"joining": f"server.1={ONE}"}, ReconfigRequest(f"server.1={ONE}", None, None, -1)),
        ({"joining": ["a", "b"]}, ReconfigRequest("a,b", None, None, -1)),
        ({"joining": {1: ONE, 12: TWO}}, ReconfigRequest(f"server.1={ONE},server.12={TWO}", None, None, -1)),
        ({"leaving": 3}, ReconfigRequest(None, "3", None, -1)),
        ({"leaving": "3,4"}, ReconfigRequest(None, "3,4", None, -1)),
        ({"leaving": (3, 4)}, ReconfigRequest(None, "3,4", None, -1)),
        ({"joining": "a", "leaving": [1]}, ReconfigRequest("a", "1", None, -1)),
        ({"members": {1: ONE}, "from_config": 5}, ReconfigRequest(None, None, f"server.1={ONE}", 5)),
        ({"members": iter("ab"), "from_config": 2**63 - 1}, ReconfigRequest(None, None, "a,b", 2**63 - 1)),
    ],
    ids=lambda value: "",
)
def test_arguments_are_converted_to_the_servers_format(said: dict[str, Any], request_: ReconfigRequest) -> None:
    said = {"joining": None, "leaving": None, "members": None, "from_config": -1} | said
    assert reconfiguration(**said) == request_


VERSION = "from_config must be the version of a configuration, or -1 for any, not"
EITHER = "reconfig takes either `members`, or `joining` and `leaving`, but not both"
LIST = "must be a str or a list of"


@pytest.mark.parametrize(
    ("said", "error", "message"),
    [
        ({}, ValueError, "reconfig needs `joining`, `leaving` or `members`"),
        ({"joining": "a", "members": "b"}, ValueError, EITHER),
        ({"leaving": 1, "members": "b"}, ValueError, EITHER),
        ({"joining": "a", "leaving": 1, "members": "b"}, ValueError, EITHER),
        ({"joining": ""}, ValueError, "joining is empty: leave it out"),
        ({"joining": []}, ValueError, "joining is empty: leave it out"),
        ({"members": " "}, ValueError, "members is empty: leave it out"),
        ({"members": {}}, ValueError, "members is empty: leave it out"),
        ({"leaving": ()}, ValueError, "leaving is empty: leave it out"),
        ({"joining": 5}, TypeError, f"joining {LIST} str, not 5"),
        ({"joining": b"server.1=a"}, TypeError, f"joining {LIST} str, not b'server.1=a'"),
        ({"joining": [1]}, TypeError, f"joining {LIST} str, not [1]"),
        ({"members": ["a", None]}, TypeError, f"members {LIST} str, not ['a', None]"),
        ({"leaving": ["one"]}, TypeError, f"leaving {LIST} int, not ['one']"),
        ({"leaving": {1: "a"}}, TypeError, f"leaving {LIST} int, not {{1: 'a'}}"),
        ({"leaving": b"\x01"}, TypeError, f"leaving {LIST} int, not b'\\x01'"),
        ({"leaving": [1, True]}, TypeError, f"leaving {LIST} int, not [1, True]"),
        ({"leaving": True}, TypeError, f"leaving {LIST} int, not True"),
        ({"leaving": 1.5}, TypeError, f"leaving {LIST} int, not 1.5"),
        ({"leaving": 1, "from_config": "1"}, TypeError, f"{VERSION} str"),
        ({"leaving": 1, "from_config": -2}, ValueError, f"{VERSION} -2"),
        ({"leaving": 1, "from_config": 2**63}, ValueError, f"{VERSION} {2**63}"),
        ({"leaving": 1, "from_config": True}, TypeError, f"{VERSION} bool"),
    ],
    ids=str,
)
def test_bad_arguments_are_refused_by_their_names(said: dict[str, Any], error: type[Exception], message: str) -> None:
    said = {"joining": None, "leaving": None, "members": None, "from_config": -1} | said
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        reconfiguration(**said)


# -- digest_acl -------------------------------------------------------------------------------------------------------


def test_a_digest_entry_has_the_hash_that_the_server_computes_also_where_sha1_is_forbidden_for_security(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sha1 = hashlib.sha1

    def forbidden(data: bytes, *, usedforsecurity: bool = True) -> Any:
        if usedforsecurity:
            raise ValueError("disabled for FIPS")
        return sha1(data, usedforsecurity=False)

    monkeypatch.setattr(hashlib, "sha1", forbidden)
    assert digest_acl("bob", "pw") == ACL(31, "digest", "bob:ikIaKsbtGweaHnb/jKn7OHqbunM=")  # base64(sha1("bob:pw"))
    assert digest_acl("bob", "pw", Perms.READ).perms == 1


NOT_STR = [(None, "pw"), ("bob", None), (b"bob", "pw"), ("bob", b"pw"), (5, 5)]


@pytest.mark.parametrize(
    ("user", "password", "error", "message"),
    [
        *((user, password, TypeError, "user and password must be str, not ") for user, password in NOT_STR),
        ("bob\ud800", "pw", ValueError, "must have a UTF-8 form: one of them contains half a character"),
        ("bob", "pw\ud800", ValueError, "must have a UTF-8 form: one of them contains half a character"),
        ("a:b", "pw", ValueError, "must not contain ':'"),
    ],
)
def test_a_bad_user_or_password_is_refused_unseen(
    user: Any, password: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message) as refused:
        digest_acl(user, password)
    assert "pw" not in str(refused.value)
    assert (refused.value.__cause__, refused.value.__context__) == (None, None)
