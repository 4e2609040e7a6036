"""DIGEST-MD5 with known numbers, and what a server may say that is none of it."""

import random

import pytest

from zkwire import AuthFailedError, DigestMD5, SaslMechanism

# PROTOCOL 12.2: taken from a real exchange.
NONCE = "5SzwfG+BbLva7npxWtwIZqKtifAuugt88pcWa/9c"
CNONCE = 0x140AD7BBAF4312AC34C584C5
RESPONSE = "1a49df88762b7adfece6662141657f70"
RSPAUTH = b"rspauth=c20d3cab651f8da067bd17202ffcdd1b"
CHALLENGE = f'realm="zk-sasl-md5",nonce="{NONCE}",charset=utf-8,algorithm=md5-sess'.encode()


class Known(random.Random):
    """Gives the client's nonce of the known exchange, which has 24 digits and not 32."""

    def getrandbits(self, k: int) -> int:
        assert k == 128
        return CNONCE


def _begun(user: str = "bob", password: str = "bobsecret") -> DigestMD5:
    mechanism = DigestMD5(user, password, Known())
    assert mechanism.start("zk1") == b""
    return mechanism


def test_the_client_speaks_second_and_names_what_it_has_hashed() -> None:
    mechanism = _begun()
    token = mechanism.step(CHALLENGE)
    assert token is not None
    said = dict(each.split(b"=", 1) for each in token.split(b","))
    assert said[b"username"] == b'"bob"'
    assert said[b"realm"] == b'"zk-sasl-md5"'
    assert said[b"nonce"] == b'"%s"' % NONCE.encode()
    assert said[b"digest-uri"] == b'"zookeeper/zk-sasl-md5"'
    assert (said[b"nc"], said[b"qop"], said[b"charset"]) == (b"00000001", b"auth", b"utf-8")


def test_the_numbers_of_a_real_exchange() -> None:
    """The nonce of the recorded exchange is shorter than ours; the hashes are those of RFC 2831."""
    mechanism = _begun()
    token = mechanism._answer("zk-sasl-md5", NONCE, f"{CNONCE:024x}")
    assert b"response=" + RESPONSE.encode() + b"," in token
    assert mechanism.step(RSPAUTH) is None


@pytest.mark.parametrize("proof", [b"rspauth=" + b"0" * 32, b"rspauth=", b"rspauth", CHALLENGE, b"x=y", b"\xff"])
def test_a_server_that_does_not_know_the_password_is_found_out(proof: bytes) -> None:
    mechanism = _begun()
    mechanism._answer("zk-sasl-md5", NONCE, f"{CNONCE:024x}")
    with pytest.raises(AuthFailedError):
        mechanism.step(proof)


@pytest.mark.parametrize(
    "challenge",
    [
        b"",
        b"nothing of the kind",
        b"\xff\xfe",
        b'realm="zk-sasl-md5",algorithm=md5-sess',
        b'nonce="abc",algorithm=md5',
        b'nonce="abc"',
        b'nonce="abc,algorithm=md5-sess',
        b'nonce="abc",algorithm=md5-sess,qop="auth-int,auth-conf"',
        RSPAUTH,
    ],
)
def test_what_is_no_challenge_is_refused(challenge: bytes) -> None:
    with pytest.raises(AuthFailedError):
        _begun().step(challenge)


@pytest.mark.parametrize(
    "challenge",
    [
        CHALLENGE,
        b'algorithm=md5-sess , nonce="abc" ,qop="auth-int, auth"',
        b'nonce="a\\"b\\\\c",algorithm=md5-sess,realm="",,qop=auth',
        b'NONCE="abc",Algorithm="md5-sess",maxbuf=65536,cipher="3des"',
    ],
)
def test_challenges_of_any_order_and_spelling_are_answered(challenge: bytes) -> None:
    assert b"response=" in (_begun().step(challenge) or b"")


def test_it_begins_anew_on_every_connection() -> None:
    mechanism = DigestMD5("bob", "bobsecret", random.Random(1))
    tokens = []
    for _ in range(2):
        assert mechanism.start("zk1") == b""
        tokens.append(mechanism.step(CHALLENGE))
    assert tokens[0] != tokens[1], "the same nonce of the client twice"


def test_a_user_with_quotes_is_quoted() -> None:
    token = _begun('o"b\\b').step(CHALLENGE)
    assert b'username="o\\"b\\\\b"' in (token or b"")


def test_bad_arguments() -> None:
    with pytest.raises(TypeError):
        DigestMD5("bob", b"secret")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="empty"):
        DigestMD5("", "secret")
    with pytest.raises(RuntimeError, match="rng"):
        DigestMD5("bob", "secret").step(CHALLENGE)
    assert isinstance(DigestMD5("bob", "secret"), SaslMechanism)


def test_its_password_is_not_shown() -> None:
    assert "secret" not in repr(DigestMD5("bob", "secret"))
