"""SASL, which shows a server who one is before anything else is asked: the interface, and DIGEST-MD5.

Pure: tokens in, tokens out.  When they travel is the session's affair.
"""

from __future__ import annotations

import hashlib
import hmac
import random
import re
from typing import Final, Protocol, runtime_checkable

from zkwire.errors import AuthFailedError

_SERVICE: Final = "zookeeper"
_HOST: Final = "zk-sasl-md5"  # every ZooKeeper server calls itself so, whatever its name
_DIGEST_URI: Final = f"{_SERVICE}/{_HOST}"
_MAX_BUFFER: Final = 65536
# RFC 2831, 7.1: name = token | "quoted string", separated by commas.
_DIRECTIVE: Final = re.compile(r'[\s,]*([!#$%&\'*+.^_`|~0-9A-Za-z-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]*))[\s,]*')


@runtime_checkable
class SaslMechanism(Protocol):
    """A SASL mechanism, for `connect(..., sasl=...)`; plug GSSAPI in through this.

    `start` is called anew on every connection, then `step` with each token of the server's (empty where it sent none),
    until that returns None: the exchange is through.  They are called from the event loop and must not block.  Whatever
    they raise ends the session as refused credentials do.  One object serves one client.
    """

    def start(self, host: str) -> bytes:
        """Begin anew, with the server `host` of the connect string; return the first token, which may be empty."""
        ...

    def step(self, token: bytes) -> bytes | None:
        """Take the server's token; return the next one, or None when nothing more is to be sent."""
        ...


class DigestMD5:
    """The mechanism DIGEST-MD5 (RFC 2831, qop=auth): a user and a password, which does not cross the wire.

    Arguments: `user` and `password`, as the server's JAAS configuration has them.
    The server proves that it knows the password too.  `rng` gives the client's nonce; `connect` gives its own.
    """

    def __init__(self, user: str, password: str, rng: random.Random | None = None) -> None:
        if not isinstance(user, str) or not isinstance(password, str):
            raise TypeError(f"user and password are str, not {type(user).__name__} and {type(password).__name__}")
        if not user:
            raise ValueError("the user is empty")
        self.user = user
        self._password = password
        self._rng = rng
        self._expected: bytes | None = None

    def with_rng(self, rng: random.Random) -> DigestMD5:
        """Return one for the same user whose nonces come from `rng`, unless it has a source already."""
        return DigestMD5(self.user, self._password, self._rng or rng)

    def start(self, host: str) -> bytes:
        """Begin anew: the server speaks first, when it has got an empty token."""
        self._expected = None
        return b""

    def step(self, token: bytes) -> bytes | None:
        """Answer the challenge; then check the server's own proof.

        Raises: AuthFailedError when the token is no such thing, or the proof is wrong.
        """
        if not token:
            raise AuthFailedError("the server has no DIGEST-MD5 set up: it sends no challenge")
        said = _directives(token)
        if self._expected is not None:
            if not hmac.compare_digest(said.get("rspauth", "").encode(), self._expected):
                raise AuthFailedError("the server does not prove that it knows the password: its rspauth is wrong")
            return None
        if "nonce" not in said or said.get("algorithm", "") != "md5-sess":
            raise AuthFailedError(f"no challenge of DIGEST-MD5: {token!r}")
        if "auth" not in re.split(r"[\s,]+", said.get("qop", "auth")):
            raise AuthFailedError(f"the server offers no plain authentication, but qop={said['qop']}")
        if self._rng is None:
            raise RuntimeError("DigestMD5 has no source of randomness: give it an rng, or use it through connect")
        return self._answer(said.get("realm", _HOST), said["nonce"], f"{self._rng.getrandbits(128):032x}")

    def _answer(self, realm: str, nonce: str, cnonce: str) -> bytes:
        secret = hashlib.md5(
            b":".join((_digested(self.user), _digested(realm), _digested(self._password))), usedforsecurity=False
        ).digest()
        key = _md5(secret + f":{nonce}:{cnonce}".encode())

        def proof(a2: str) -> str:
            return _md5(f"{key}:{nonce}:00000001:{cnonce}:auth:{_md5(a2.encode())}".encode())

        self._expected = proof(f":{_DIGEST_URI}").encode()
        return (
            f'charset=utf-8,username="{_quoted(self.user)}",realm="{_quoted(realm)}",nonce="{_quoted(nonce)}",'
            f'nc=00000001,cnonce="{cnonce}",digest-uri="{_DIGEST_URI}",maxbuf={_MAX_BUFFER},'
            f"response={proof(f'AUTHENTICATE:{_DIGEST_URI}')},qop=auth"
        ).encode()


def _md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def _digested(text: str) -> bytes:
    """RFC 2831, 2.1.2.1: what fits into ISO 8859-1 is hashed in it, whatever the charset."""
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode()


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _directives(token: bytes) -> dict[str, str]:
    try:
        text = token.decode()
    except UnicodeDecodeError:
        raise AuthFailedError(f"no token of DIGEST-MD5: {token!r}") from None
    said: dict[str, str] = {}
    at = 0
    while at < len(text):
        found = _DIRECTIVE.match(text, at)
        if found is None:
            raise AuthFailedError(f"no token of DIGEST-MD5: {token!r}")
        name, quoted, plain = found.groups()
        said.setdefault(name.lower(), plain if quoted is None else re.sub(r"\\(.)", r"\1", quoted))
        at = found.end()
    return said
