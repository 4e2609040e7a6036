"""The options of `connect`: their checks, limits of requests and replies, memory for requests in flight."""

import asyncio
import re
import ssl
from typing import Any

import pytest

import zkwire
from tests.support.client import cancelled, states_until
from tests.support.everywhere import scene
from zkwire import GetData
from zkwire.testing import Server
from zkwire.wire.timing import LONGEST

MiB = 1024 * 1024


async def test_a_credential_that_is_larger_than_a_request_is_refused_and_breaks_no_later_connection() -> None:
    async with Server() as server:
        too_large = ("digest", b"bob:" + bytes(2 * MiB))
        with pytest.raises(ValueError, match=r"auth: the request has .* bytes, but a server accepts"):
            zkwire.connect(server.hosts, auth=[too_large])
        async with zkwire.connect(server.hosts) as zk, asyncio.timeout(5):
            with pytest.raises(ValueError, match=r"auth: the request has .* bytes, but a server accepts"):
                await zk.add_auth(*too_large)
            server.drop()
            await zk.get("/")


async def test_with_a_small_request_limit_reads_trees_and_watches_are_sent_in_more_requests() -> None:
    async with Server(max_buffer=2000) as server, zkwire.connect(server.hosts, request_limit=2000) as zk:
        paths = [f"/a/{'n' * 90}-{number}" for number in range(40)]
        await zk.create("/a")
        for path in paths:
            await zk.create(path)
        assert len(await zk.get_many([GetData(path) for path in paths])) == 40
        with zkwire.WatchSet() as watches:
            for path in paths:
                await zk.get_and_watch(path, into=watches)
            server.drop_before(session=zk.session_id, nth=1)
            await zk.delete_tree("/a")  # the connection breaks, and the watches are set again
            assert {(await watches.next()).path for _ in paths} == set(paths)


async def test_a_reply_above_the_reply_limit_fails_the_read_that_asked_for_it() -> None:
    async with scene() as stage, zkwire.connect(f"{stage.server.hosts}/app", reply_limit=10_000) as zk:
        await zk.create("/a", bytes(9_000), make_parents=True)
        await zk.create("/b", bytes(10_000))
        assert len((await zk.get("/a")).data) == 9_000
        with pytest.raises(zkwire.ProtocolError, match=r"getData /b: .*10000 are accepted.*`reply_limit`") as failed:
            await zk.get("/b")
        assert failed.value.path == "/b"
        assert len((await zk.get("/a")).data) == 9_000


LIMIT = "must be a number of bytes, at least 1024 and at most 2147483647, not"
TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


async def open_nothing(*_: object) -> Any:
    """Stand in for a function that opens connections."""


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"session_timeout": True}, TypeError, "session_timeout must be a number of seconds, not bool"),
        ({"session_timeout": "10"}, TypeError, "session_timeout must be a number of seconds, not str"),
        ({"session_timeout": 0}, ValueError, "session_timeout must be a positive number of seconds, not 0"),
        ({"session_timeout": 3601}, ValueError, "3601 are more than an hour: for milliseconds give 3.601"),
        ({"session_timeout": 3_599_999}, ValueError, "are more than an hour: for milliseconds give 3600"),
        ({"session_timeout": 3_600_000}, ValueError, "3600000 are more than an hour"),
        ({"within": True}, TypeError, "within must be 0 seconds or more, or None to wait for ever, not bool"),
        ({"within": -1}, ValueError, "within must be 0 seconds or more, or None to wait for ever, not -1"),
        ({"within": float("nan")}, ValueError, "within must be 0 seconds or more, or None to wait for ever, not nan"),
        ({"max_in_flight": 1.5}, TypeError, "max_in_flight must be a number of requests, 1 or more, not float"),
        ({"max_in_flight": 0}, ValueError, "max_in_flight must be a number of requests, 1 or more, not 0"),
        *(
            ({"request_timeout": value}, ValueError, f"from 0.001 to a day, or None, not {value}")
            for value in (0, float("nan"), 86401, 10**400)
        ),
        *(
            ({name: value}, error, f"{name} {message}")
            for name in ("request_limit", "reply_limit")
            for value, error, message in (
                (1023, ValueError, f"{LIMIT} 1023"),
                (2**31, ValueError, f"{LIMIT} 2147483648"),
                (-1, ValueError, f"{LIMIT} -1"),
                (1e6, TypeError, f"{LIMIT} float"),
                (True, TypeError, f"{LIMIT} bool"),
            )
        ),
        ({"session_id": "5"}, TypeError, "session_id must be an int of 64 bits, not str"),
        ({"session_password": "5"}, TypeError, "session_password must be bytes, not str"),
        ({"session_id": 2**63}, ValueError, "session_id must be an int of 64 bits, not 9223372036854775808"),
        ({"session_id": -(2**63) - 1}, ValueError, "session_id must be an int of 64 bits, not -9223372036854775809"),
        ({"session_id": 5}, ValueError, "to resume 0x5, give its session_password of 16 bytes"),
        ({"session_password": bytes(16)}, ValueError, "a session_password needs a session_id"),
        ({"session_id": 5, "session_password": bytes(16), "least_timeout": 0}, ValueError, "least_timeout must be a"),
        ({"session_id": 5, "session_password": bytes(16), "least_timeout": True}, TypeError, "least_timeout must be a"),
        ({"least_timeout": 5}, ValueError, "least_timeout must be a positive number of seconds and needs a session_id"),
        ({"ssl": TLS, "open_link": open_nothing}, ValueError, "give ssl or open_link, not both"),
        ({"ssl": TLS, "follow_config": True}, ValueError, "follow_config cannot be used with ssl"),
        ({"sasl": 5}, TypeError, "sasl must have the methods start and step, as DigestMD5 has; a int has not"),
        ({"observer": 5}, TypeError, "observer must be a zkwire.Observer, not int"),
        ({"auth": ["ab"]}, TypeError, "auth must be a sequence of pairs of a scheme and bytes"),
        ({"auth": [("digest", b"bob:pw", b"")]}, TypeError, "auth must be a sequence of pairs of a scheme and bytes"),
    ],
)
def test_an_option_that_no_session_can_have_is_refused_at_once(
    options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=re.escape(message) + ("$" if "hour" in message else "")):
        zkwire.connect("localhost", **options)


@pytest.mark.parametrize(
    "options",
    [
        {"session_timeout": 3600},
        {"session_timeout": 0.001},
        {"within": 0},
        {"within": None},
        {"max_in_flight": 1, "request_timeout": 0.001},
        {"request_timeout": 86400},
        *({name: value} for name in ("request_limit", "reply_limit") for value in (1024, 2**31 - 1)),
        *({"session_id": value, "session_password": bytes(16)} for value in (2**63 - 1, -(2**63), 1)),
        *({"session_id": 5, "session_password": bytearray(16), "least_timeout": value} for value in (0.1, LONGEST)),
        {"ssl": False, "open_link": open_nothing, "follow_config": True},
        {"ssl": TLS},
        {"auth": [["digest", b"bob:pw"]]},
        {"sasl": zkwire.DigestMD5("bob", "pw")},
    ],
)
def test_the_least_and_the_largest_value_of_an_option_are_taken(options: dict[str, Any]) -> None:
    with pytest.warns(RuntimeWarning, match="never awaited") as warned:
        zkwire.connect("localhost", **options)
    assert warned[0].filename == __file__  # the warning shows the line that has called connect


async def test_the_identities_of_a_client_are_counted() -> None:
    async with Server() as server:
        async with zkwire.connect(server.hosts) as zk:
            assert zk.identity_count == 0
            await zk.add_auth("digest", b"bob:pw")
            assert zk.identity_count == 1
            with pytest.raises(TypeError):
                await zk.add_auth("digest", "bob:pw")  # type: ignore[arg-type]
            with server.refuse_connections():
                server.drop()
                await states_until(zk.states(), zkwire.SessionState.SUSPENDED)
                adding = [asyncio.ensure_future(zk.add_auth("digest", b"eve:pw")) for _ in range(2)]
                await asyncio.sleep(0)
                for each, count in zip(adding, (2, 1), strict=True):
                    assert zk.identity_count == 2
                    await cancelled(each)
                    assert zk.identity_count == count, "it was not yet written, and is forgotten"
        two = [("digest", b"bob:pw"), ("digest", b"eve:pw"), ("digest", b"bob:pw")]
        async with zkwire.connect(server.hosts, auth=two) as zk:
            assert zk.identity_count == 2


def test_the_class_of_clients_says_what_makes_them(recwarn: pytest.WarningsRecorder) -> None:
    for arguments in (("localhost:2181",), ("localhost:2181", "", 10.0, 0)):
        with pytest.raises(TypeError, match="a Client is not made by its class"):
            zkwire.Client(*arguments)
    assert not recwarn.list


async def test_a_client_that_was_not_awaited_or_is_awaited_twice_says_so() -> None:
    not_awaited: Any = zkwire.connect("localhost")
    for name in ("get", "session_id"):
        with pytest.raises(AttributeError, match="await it, or use `async with`"):
            getattr(not_awaited, name)
    assert not hasattr(not_awaited, "nothing")
    with pytest.warns(RuntimeWarning, match="never awaited"):
        del not_awaited
    twice = zkwire.connect("127.0.0.1:1", within=0)
    for error, message in ((TimeoutError, "no session"), (RuntimeError, "was awaited already")):
        with pytest.raises(error, match=message):
            await twice
