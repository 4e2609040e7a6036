"""No secret is printed: not in a misspelt call, a log, a repr, an error, or a traceback with local variables."""

import asyncio
import contextlib
import pickle
import random
import struct
from collections.abc import Callable
from typing import Any

import pytest

import zkwire
from tests.support import rogue
from tests.support.client import cancelled, drop
from tests.support.planted import Watch, planted, shows
from tests.support.rogue import Peer, Rogue
from zkwire import DigestMD5
from zkwire.testing import Server
from zkwire.wire.records import ConnectRequest, ConnectResponse
from zkwire.wire.requests import AuthRequest, SaslReply, SaslRequest

SECRET = planted("Xq7-hidden-word")
CHALLENGE = b'nonce="abc",algorithm=md5-sess'
SECRETS = {SECRET.encode()}
BOB = f"bob:{SECRET}"
AUTH_FAILED = -115
PASSWORD = planted("pass-of-16-bytes").encode()

pytestmark = pytest.mark.usefixtures("no_secret_printed")


class Mechanism:
    """A SASL mechanism that sends its password as it is, as PLAIN does."""

    def __init__(self, wrong: str) -> None:
        self.wrong = wrong

    def start(self, host: str) -> Any:
        return f"\0{BOB}" if self.wrong == "no bytes" else f"\0{BOB}".encode()

    def step(self, token: bytes) -> bytes | None:
        if self.wrong == "step":
            raise RuntimeError("the ticket has expired")
        return None


MISSPELT: dict[str, Callable[[], object]] = {
    "a password that is not bytes": lambda: zkwire.connect("zk1", session_id=5, session_password=SECRET),  # type: ignore[arg-type]
    "a session id that is not an int": lambda: zkwire.connect("zk1", session_id="5", session_password=SECRET.encode()),  # type: ignore[arg-type]
    "a password in place of the id": lambda: zkwire.connect("zk1", session_id=SECRET),  # type: ignore[arg-type]
    "a password of another length": lambda: zkwire.connect("zk1", session_id=5, session_password=SECRET.encode()),
    "a password without an id": lambda: zkwire.connect("zk1", session_password=SECRET.encode()),
    "an id of too many bits": lambda: zkwire.connect("zk1", session_id=2**64, session_password=SECRET.encode()),
    "sasl as text": lambda: zkwire.connect("zk1", sasl=BOB),  # type: ignore[arg-type]
    "auth as text": lambda: zkwire.connect("zk1", auth=BOB),  # type: ignore[arg-type]
    "auth without a list": lambda: zkwire.connect("zk1", auth=("digest", BOB.encode())),  # type: ignore[arg-type]
    "auth that is text": lambda: zkwire.connect("zk1", auth=[("digest", BOB)]),  # type: ignore[list-item]
    "auth in three parts": lambda: zkwire.connect("zk1", auth=[("digest", "bob", SECRET)]),  # type: ignore[list-item]
    "auth turned round": lambda: zkwire.connect("zk1", auth=[(BOB, b"digest")]),
    "auth that is too large": lambda: zkwire.connect("zk1", auth=[("digest", BOB.encode() * 100_000)]),
    "auth, and another argument is wrong": lambda: zkwire.connect("zk1", -1.0, auth=[("digest", BOB.encode())]),
    "a password in the connect string": lambda: zkwire.connect(f"{BOB}@zk1:2181"),
    "a password for the timeout": lambda: zkwire.connect("zk1", SECRET),  # type: ignore[arg-type]
    "a password for ssl": lambda: zkwire.connect("zk1", ssl=SECRET),  # type: ignore[arg-type]
    "DigestMD5 with bytes": lambda: DigestMD5("bob", SECRET.encode()),  # type: ignore[arg-type]
    "DigestMD5 without a user": lambda: DigestMD5("", SECRET),
    "DigestMD5 with half a character": lambda: DigestMD5("bob", SECRET + "\ud800"),
    "digest_acl with bytes": lambda: zkwire.digest_acl("bob", SECRET.encode()),  # type: ignore[arg-type]
    "digest_acl with a colon": lambda: zkwire.digest_acl(BOB, SECRET),
    "digest_acl with half a character": lambda: zkwire.digest_acl("bob", SECRET + "\ud800"),
}


@pytest.mark.parametrize("call", MISSPELT)
async def test_a_misspelt_call_does_not_print_the_secret(no_secret_printed: Watch, call: str) -> None:
    with pytest.raises((TypeError, ValueError)) as refused:
        MISSPELT[call]()
    no_secret_printed.add_error(refused.value)


@pytest.mark.parametrize(
    ("scheme", "data"),
    [("digest", BOB), (BOB, b"digest"), (BOB.encode(), b"digest"), ("sasl", BOB.encode()), ("", BOB.encode())],
)
async def test_a_misspelt_add_auth_does_not_print_the_secret(no_secret_printed: Watch, scheme: Any, data: Any) -> None:
    async with Server() as server, zkwire.connect(server.hosts) as zk:
        with pytest.raises((TypeError, ValueError)) as refused:
            await zk.add_auth(scheme, data)
        no_secret_printed.add_error(refused.value)


async def test_a_misspelt_acl_does_not_print_the_hash_of_a_password(no_secret_printed: Watch) -> None:
    entry = zkwire.digest_acl("bob", SECRET)
    no_secret_printed.secrets.add(entry.id.encode())
    async with Server() as server, zkwire.connect(server.hosts) as zk:
        bad: list[Any] = [entry, [entry.id], [entry, 5], [zkwire.ACL(2**40, "digest", entry.id)]]
        for acl in bad:
            with pytest.raises((TypeError, ValueError)) as refused:
                await zk.create("/a", acl=acl)
            no_secret_printed.add("an error", str(refused.value))


@pytest.mark.parametrize("id_", [zkwire.digest_acl("bob", SECRET).id, f"bob:{SECRET}:more", SECRET])
async def test_a_refused_acl_does_not_show_its_hash_in_a_traceback(no_secret_printed: Watch, id_: str) -> None:
    no_secret_printed.secrets.add(id_.partition(":")[2].encode() or SECRET.encode())
    acl = [zkwire.ACL(1, "digest", id_), zkwire.ACL(1, "no-scheme", "x")]
    async with Server() as server, zkwire.connect(server.hosts) as zk:
        with pytest.raises(zkwire.InvalidACLError):
            await zk.create("/a", acl=acl)  # the fixture looks at the local variables
        with pytest.raises(zkwire.InvalidACLError):
            await zk.set_acl("/zookeeper", acl)
        with pytest.raises(zkwire.TransactionError):
            async with zk.transaction() as tx:
                tx.create("/a", acl=acl)


def test_an_acl_shows_whom_it_is_for() -> None:
    assert repr(zkwire.ACL(31, "digest", "bob:hash:x")) == "ACL(perms=31, scheme='digest', id='bob:x')"
    assert repr(zkwire.ACL(31, "digest", "secret")) == "ACL(perms=31, scheme='digest', id='x')"
    assert repr(zkwire.ACL(31, "auth", "")) == "ACL(perms=31, scheme='auth', id='')"
    assert repr(zkwire.ACL(31, "ip", "::1")) == "ACL(perms=31, scheme='ip', id='::1')"
    assert repr(zkwire.ACL(31, "digest", 5)) == "ACL(perms=31, scheme='digest', id='x')"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "record",
    [
        ConnectRequest(0, 0, 4000, 5, SECRET.encode(), False),
        ConnectResponse(0, 4000, 5, SECRET.encode()),
        AuthRequest(0, "digest", BOB.encode()),
        SaslRequest(BOB.encode()),
        SaslReply(BOB.encode()),
    ],
)
def test_a_record_does_not_show_its_secret(record: object) -> None:
    assert type(record).__name__ in repr(record)
    assert not shows(repr(record), SECRETS)


async def test_a_handshake_that_makes_no_session_is_logged_without_a_password(caplog: pytest.LogCaptureFixture) -> None:
    async def bad(peer: Peer) -> None:
        await peer.connect_request()
        await peer.send_frame(struct.pack(">iiqi", 0, 4000, 5, len(SECRET)) + SECRET.encode() + b"\0")

    async with Rogue(bad, rogue.honest) as server, zkwire.connect(server.hosts):
        pass
    assert "handshake" in caplog.text


async def test_a_session_that_cannot_be_resumed_does_not_print_its_password(no_secret_printed: Watch) -> None:
    async with Server() as server:
        with pytest.raises(zkwire.SessionExpiredError):
            await zkwire.connect(server.hosts, session_id=77, session_password=PASSWORD)


def test_a_mechanism_with_a_password_is_not_pickled(no_secret_printed: Watch) -> None:
    with pytest.raises(TypeError, match="a DigestMD5 has a password, and is neither pickled nor copied"):
        pickle.dumps(DigestMD5("bob", SECRET))


async def test_a_refused_credential_does_not_print_itself() -> None:
    async with Server() as server, zkwire.connect(server.hosts) as zk:
        with server.answering("auth", AUTH_FAILED), pytest.raises(zkwire.AuthFailedError):
            await zkwire.connect(server.hosts, auth=[("digest", BOB.encode())])
        with server.answering("auth", AUTH_FAILED), pytest.raises(zkwire.AuthFailedError):
            await zk.add_auth("digest", BOB.encode())


@pytest.mark.parametrize("wrong", ["server", "step", "no bytes"])
async def test_a_refused_mechanism_does_not_print_its_token(wrong: str) -> None:
    async with Server() as server, contextlib.AsyncExitStack() as stack:
        if wrong == "server":
            stack.enter_context(server.answering("sasl", AUTH_FAILED))
        with pytest.raises(zkwire.AuthFailedError):
            await zkwire.connect(server.hosts, sasl=Mechanism(wrong))


@pytest.mark.parametrize("challenge", [b"nonsense", CHALLENGE, b"\xff"])
async def test_a_wrong_answer_to_digest_md5_prints_no_password(challenge: bytes) -> None:
    async def wrong(peer: Peer) -> None:
        await peer.handshake()
        for _ in range(2):
            request = await peer.first_request()
            await peer.reply(request.xid, struct.pack(">i", len(challenge)) + challenge)
        await peer.ignore()

    async with Rogue(wrong) as server:
        with pytest.raises(zkwire.AuthFailedError):
            await zkwire.connect(server.hosts, sasl=DigestMD5("bob", SECRET))


@pytest.mark.parametrize("given", [True, False])
async def test_ids_and_nonces_come_from_the_system_unless_a_generator_is_given(
    monkeypatch: pytest.MonkeyPatch, given: bool
) -> None:
    """The names of nodes show the output of a random.Random(), from which its later output can be computed."""
    monkeypatch.setattr(random.SystemRandom, "getrandbits", lambda self, bits: 7)
    nonces = []

    async def challenging(peer: Peer) -> None:
        await peer.handshake()
        await peer.reply((await peer.first_request()).xid, struct.pack(">i", len(CHALLENGE)) + CHALLENGE)
        nonces.append(b'cnonce="%032x"' % 7 in (await peer.first_request()).body)

    rng = random.Random(1) if given else None
    async with Rogue(challenging) as server, asyncio.timeout(20):
        connecting = asyncio.ensure_future(zkwire.connect(server.hosts, sasl=DigestMD5("bob", SECRET), rng=rng))
        await server.requested(102, 2)
        await cancelled(connecting)
    async with Server() as memory, zkwire.connect(memory.hosts, rng=rng) as zk:
        assert zk.unique_id().endswith("000000000007") is not given
    assert set(nonces) == {not given}


async def test_asyncio_that_logs_each_step_prints_no_secret() -> None:
    loop = asyncio.get_running_loop()
    loop.set_debug(True)
    loop.slow_callback_duration = 0
    async with (
        Server() as server,
        zkwire.connect(server.hosts, auth=[("digest", BOB.encode())], observer=zkwire.Observer()) as zk,
    ):
        await zk.add_auth("digest", BOB.encode() + b"2")
        await drop(server, zk)
        await zk.create("/a", acl=zkwire.CREATOR_ALL_ACL)
    loop.set_debug(False)
