"""DIGEST-MD5 with the numbers of a recorded exchange, and tokens of a server that are wrong."""

import random

import pytest

from zkwire import AuthFailedError, DigestMD5, SaslMechanism

# Recorded from a real exchange.
NONCE = "5SzwfG+BbLva7npxWtwIZqKtifAuugt88pcWa/9c"
CNONCE = 0x140AD7BBAF4312AC34C584C5
RESPONSE = "1a49df88762b7adfece6662141657f70"
RSPAUTH = b"rspauth=c20d3cab651f8da067bd17202ffcdd1b"
CHALLENGE = f'realm="zk-sasl-md5",nonce="{NONCE}",charset=utf-8,algorithm=md5-sess'.encode()


class Known(random.Random):
    """Returns the client's nonce of the recorded exchange, which has 24 digits and not 32."""

    def getrandbits(self, k: int) -> int:
        assert k == 128
        return CNONCE


def _started(user: str = "bob", password: str = "bobsecret") -> DigestMD5:
    mechanism = DigestMD5(user, password, Known())
    assert mechanism.start("zk1") == b""
    return mechanism


def test_the_client_answers_the_challenge_with_the_fields_it_has_hashed() -> None:
    mechanism = _started()
    token = mechanism.step(CHALLENGE)
    assert token is not None
    fields = dict(each.split(b"=", 1) for each in token.split(b","))
    assert fields[b"username"] == b'"bob"'
    assert fields[b"realm"] == b'"zk-sasl-md5"'
    assert fields[b"nonce"] == b'"%s"' % NONCE.encode()
    assert fields[b"digest-uri"] == b'"zookeeper/zk-sasl-md5"'
    assert (fields[b"nc"], fields[b"qop"], fields[b"charset"]) == (b"00000001", b"auth", b"utf-8")


def test_the_hashes_are_those_of_a_real_exchange() -> None:
    """The recorded nonce is shorter than ours, so that it is passed in."""
    mechanism = _started()
    token = mechanism._answer("zk-sasl-md5", NONCE, f"{CNONCE:024x}")
    assert b"response=" + RESPONSE.encode() + b"," in token
    assert mechanism.step(RSPAUTH) is None


@pytest.mark.parametrize("proof", [b"rspauth=" + b"0" * 32, b"rspauth=", b"rspauth", CHALLENGE, b"x=y", b"\xff"])
def test_a_server_without_a_valid_proof_is_refused(proof: bytes) -> None:
    mechanism = _started()
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
def test_a_bad_challenge_is_refused(challenge: bytes) -> None:
    with pytest.raises(AuthFailedError):
        _started().step(challenge)


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
    assert b"response=" in (_started().step(challenge) or b"")


def test_every_connection_begins_a_new_exchange() -> None:
    mechanism = DigestMD5("bob", "bobsecret", random.Random(1))
    tokens = []
    for _ in range(2):
        assert mechanism.start("zk1") == b""
        tokens.append(mechanism.step(CHALLENGE))
    assert tokens[0] != tokens[1], "the same nonce of the client twice"


def test_quotes_in_the_user_are_escaped() -> None:
    token = _started('o"b\\b').step(CHALLENGE)
    assert b'username="o\\"b\\\\b"' in (token or b"")


def test_bad_arguments() -> None:
    with pytest.raises(TypeError):
        DigestMD5("bob", b"secret")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="empty"):
        DigestMD5("", "secret")
    with pytest.raises(RuntimeError, match="rng"):
        DigestMD5("bob", "secret").step(CHALLENGE)
    assert isinstance(DigestMD5("bob", "secret"), SaslMechanism)


def test_the_password_is_not_in_the_repr() -> None:
    assert "secret" not in repr(DigestMD5("bob", "secret"))
