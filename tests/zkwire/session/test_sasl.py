"""DIGEST-MD5 with the numbers of a recorded exchange, and tokens of a server that are wrong."""

import hashlib
import random
from typing import Any

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


def _md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


@pytest.mark.parametrize(
    ("user", "password", "realm", "hashed"),
    [
        ("bob", "bobsecret", "zk-sasl-md5", b"bob:zk-sasl-md5:bobsecret"),
        ("bob", "bobsecret", None, b"bob:zk-sasl-md5:bobsecret"),
        ("bob", "bobsecret", "", b"bob::bobsecret"),
        ("jürgen", "größe", "zk", "jürgen:zk:größe".encode("latin-1")),
        ("ann", "пароль", "zürich", "ann:zürich:".encode("latin-1") + "пароль".encode()),
        ('o"b\\b', "x", "zk", b'o"b\\b:zk:x'),
    ],
)
def test_the_answer_to_a_challenge_has_the_fields_and_the_hashes_of_rfc_2831(
    user: str, password: str, realm: str | None, hashed: bytes
) -> None:
    """A text is hashed as ISO 8859-1 if that can represent it, otherwise as UTF-8."""
    mechanism = _started(user, password)
    field = "" if realm is None else f'realm="{realm}",'
    token = mechanism.step(f'{field}nonce="{NONCE}",charset=utf-8,algorithm=md5-sess'.encode())
    cnonce = f"{CNONCE:032x}"
    key = _md5(hashlib.md5(hashed, usedforsecurity=False).digest() + f":{NONCE}:{cnonce}".encode())

    def proof(method: str) -> str:
        rest = _md5(f"{method}:zookeeper/zk-sasl-md5".encode())
        return _md5(f"{key}:{NONCE}:00000001:{cnonce}:auth:{rest}".encode())

    quoted = user.replace("\\", "\\\\").replace('"', '\\"')
    assert (token or b"").decode() == (
        f'charset=utf-8,username="{quoted}",realm="{"zk-sasl-md5" if realm is None else realm}",nonce="{NONCE}",'
        f'nc=00000001,cnonce="{cnonce}",digest-uri="zookeeper/zk-sasl-md5",maxbuf=65536,'
        f"response={proof('AUTHENTICATE')},qop=auth"
    )
    assert mechanism.step(f"rspauth={proof('')}".encode()) is None


def test_the_hashes_are_those_of_a_real_exchange() -> None:
    """The recorded nonce is shorter than ours, so that it is passed in."""
    mechanism = _started()
    token = mechanism._answer("zk-sasl-md5", NONCE, f"{CNONCE:024x}")
    assert b"response=" + RESPONSE.encode() + b"," in token
    assert mechanism.step(RSPAUTH) is None


def test_a_system_that_permits_md5_where_it_protects_nothing_is_no_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Systems with the rules of FIPS 140 refuse it otherwise."""
    real = hashlib.md5

    def md5(data: bytes, *, usedforsecurity: bool = True) -> Any:
        assert not usedforsecurity
        return real(data, usedforsecurity=False)

    monkeypatch.setattr(hashlib, "md5", md5)
    assert _started().step(CHALLENGE) is not None


def test_a_source_of_randomness_is_lent_to_a_mechanism_without_one() -> None:
    """That is how `connect` makes its `rng` the source of the nonces."""
    lent = random.Random(1)
    own = DigestMD5("bob", "bobsecret", Known())._with_rng(lent).step(CHALLENGE) or b""
    assert own == _started().step(CHALLENGE)
    borrowed = DigestMD5("bob", "bobsecret")._with_rng(lent).step(CHALLENGE) or b""
    assert f'cnonce="{random.Random(1).getrandbits(128):032x}"'.encode() in borrowed


@pytest.mark.parametrize("proof", [b"rspauth=" + b"0" * 32, b"rspauth=", b"rspauth", CHALLENGE, b"x=y", b"\xff"])
def test_a_server_without_a_valid_proof_is_refused(proof: bytes) -> None:
    mechanism = _started()
    mechanism._answer("zk-sasl-md5", NONCE, f"{CNONCE:024x}")
    with pytest.raises(AuthFailedError):
        mechanism.step(proof)


LONG = b"x" * 60  # the longest token that is shown whole


@pytest.mark.parametrize(
    ("challenge", "why"),
    [
        (b"", "the server has no DIGEST-MD5 set up: it sends no challenge"),
        (b"nothing of the kind", "not a token of DIGEST-MD5: b'nothing of the kind'"),
        (b"\xff\xfe", "not a token of DIGEST-MD5: b'\\xff\\xfe'"),
        (LONG, f"not a token of DIGEST-MD5: {LONG!r}"),
        (LONG + b"yz", f"not a token of DIGEST-MD5: {LONG!r} and 2 bytes more"),
        (b"x=y,algorithm=md5-sess", "not a challenge of DIGEST-MD5: b'x=y,algorithm=md5-sess'"),
        (b'nonce="abc",algorithm=md5', "not a challenge of DIGEST-MD5: b'nonce=\"abc\",algorithm=md5'"),
        (b'nonce="abc"', "not a challenge of DIGEST-MD5: b'nonce=\"abc\"'"),
        (b'nonce="abc,algorithm=md5-sess', "not a token of DIGEST-MD5: b'nonce=\"abc,algorithm=md5-sess'"),
        (
            b'nonce="abc",algorithm=md5-sess,qop="auth-int,auth-conf"',
            "the server does not offer qop=auth, but qop=b'auth-int,auth-conf'",
        ),
        (RSPAUTH, f"not a challenge of DIGEST-MD5: {RSPAUTH!r}"),
    ],
)
def test_a_bad_challenge_is_refused_with_the_reason(challenge: bytes, why: str) -> None:
    with pytest.raises(AuthFailedError) as refused:
        _started().step(challenge)
    assert str(refused.value) == why


@pytest.mark.parametrize(
    "challenge",
    [
        CHALLENGE,
        b'algorithm=md5-sess , nonce="abc" ,qop="auth-int, auth"',
        b'nonce="a\\"b\\\\c",algorithm=md5-sess,realm="",,qop=auth',
        b"nonce=abc,algorithm=md5-sess,algorithm=md5",
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


def test_quotes_in_a_challenge_are_understood_and_quoted_again() -> None:
    token = _started().step(b'nonce="a\\"b\\\\c",algorithm=md5-sess,realm="d\\"",') or b""
    assert b'realm="d\\"",nonce="a\\"b\\\\c",' in token


@pytest.mark.parametrize(
    ("user", "password", "kinds"),
    [("bob", b"x", "str and bytes"), (7, "x", "int and str"), (7, None, "int and NoneType")],
)
def test_a_user_and_a_password_of_other_types_are_refused(user: Any, password: Any, kinds: str) -> None:
    with pytest.raises(TypeError, match=f"^user and password are str, not {kinds}$"):
        DigestMD5(user, password)


@pytest.mark.parametrize("code", [0xD800, 0xDFFF])
def test_half_a_character_is_refused(code: int) -> None:
    for user, password in ((chr(code), "secret"), ("bob", f"x{chr(code)}")):
        with pytest.raises(ValueError, match="contains half a character"):
            DigestMD5(user, password)
    assert _started("\ud7ff", "\ue000").step(CHALLENGE) is not None  # the nearest characters


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="empty"):
        DigestMD5("", "secret")
    with pytest.raises(RuntimeError, match="rng"):
        DigestMD5("bob", "secret").step(CHALLENGE)
    assert isinstance(DigestMD5("bob", "secret"), SaslMechanism)


def test_the_password_is_not_in_the_repr() -> None:
    assert "secret" not in repr(DigestMD5("bob", "secret"))
