"""SASL, which authenticates a connection before all requests: the interface for mechanisms, and DIGEST-MD5.

Pure: tokens in, tokens out.  See attempt.py for how they travel.
"""

from __future__ import annotations

import random
import re
from collections.abc import Awaitable
from typing import Final, NoReturn, Protocol, runtime_checkable

from zkwire.errors import AuthFailedError
from zkwire.session.credentials import scrub_traceback

_HOST: Final = "zk-sasl-md5"  # every ZooKeeper server uses this name, whatever its host is called
_DIGEST_URI: Final = f"zookeeper/{_HOST}"
_MAX_BUFFER: Final = 65536
_SHOWN: Final = 60  # bytes of a token in a message
# RFC 2831, 7.1: name = token | "quoted string", separated by commas.
_DIRECTIVE: Final = r'[\s,]*([!#$%&\'*+.^_`|~0-9A-Za-z-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]*))[\s,]*'


@runtime_checkable
class SaslMechanism(Protocol):
    """A SASL mechanism, for `connect(..., sasl=...)`: the server knows who the client is before any other request.

    `start` is called on every connection, then `step` with each token of the server (empty if it sent none), until
    `step` returns None: the exchange is through.  The event loop calls both, one at a time, and they must not block.
    One that has to, as Kerberos does, is an ``async def`` and runs that part in a thread; it is cancelled when the
    attempt to connect ends, and then the next call is `start` again.  One object serves one client.

    What they raise decides how it goes on.  An OSError, such as ConnectionError, TimeoutError or socket.gaierror, says
    that what they need cannot be reached now: the attempt counts as failed, is logged, and the client tries again,
    after its usual pauses.  Any other exception ends the session, as refused credentials do, and so do the OSErrors of
    files (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError) and ssl.SSLCertVerificationError.
    """

    def start(self, host: str) -> bytes | Awaitable[bytes | None] | None:
        """Begin a new exchange with the server `host` of the connect string; return the first token, perhaps empty."""
        ...

    def step(self, token: bytes) -> bytes | Awaitable[bytes | None] | None:
        """Take the server's token; return the next one to send, None when the exchange is through."""
        ...


class DigestMD5:
    """The mechanism DIGEST-MD5 (RFC 2831, qop=auth): a user and a password, which is not sent over the network.

    The server proves that it knows the password, too.

    Args:
        user: As the server's JAAS configuration has it.
        password: The same.
        rng: The source of the client's nonces, None to use the one of ``connect``.

    Raises:
        TypeError, ValueError: If the user or the password cannot be one.
    """

    @scrub_traceback
    def __init__(self, user: str, password: str, rng: random.Random | None = None) -> None:
        _check_user(user, password)
        self.user = user
        self._password = password
        self._rng = rng
        self._expected: bytes | None = None

    def __reduce__(self) -> NoReturn:
        raise TypeError("a DigestMD5 has a password, and is neither pickled nor copied: make it where it is used")

    def _with_rng(self, rng: random.Random) -> DigestMD5:
        """Return a DigestMD5 for the same user that takes nonces from `rng`, unless this one has a source already."""
        return DigestMD5(self.user, self._password, self._rng or rng)

    def start(self, host: str) -> bytes:
        """Return an empty token, to which the server answers with its challenge."""
        self._expected = None
        return b""

    def step(self, token: bytes) -> bytes | None:
        """Answer the challenge; when called again, check the server's own proof.

        Raises:
            AuthFailedError: If the token cannot be understood, or the proof is wrong.
            RuntimeError: If there is no source of randomness.
        """
        if not token:
            raise AuthFailedError("the server has no DIGEST-MD5 set up: it sends no challenge")
        fields = _directives(token)
        if self._expected is not None:
            import hmac  # few programs use SASL

            if not hmac.compare_digest(fields.get("rspauth", "").encode(), self._expected):
                raise AuthFailedError("the server does not prove that it knows the password: its rspauth is wrong")
            return None
        if "nonce" not in fields or fields.get("algorithm", "") != "md5-sess":
            raise AuthFailedError(f"not a challenge of DIGEST-MD5: {_shortened(token)}")
        if "auth" not in re.split(r"[\s,]+", fields.get("qop", "auth")):
            raise AuthFailedError(f"the server does not offer qop=auth, but qop={_shortened(fields['qop'].encode())}")
        if self._rng is None:
            raise RuntimeError("DigestMD5 has no source of randomness: pass rng, or use it through zkwire.connect")
        return self._answer(fields.get("realm", _HOST), fields["nonce"], f"{self._rng.getrandbits(128):032x}")

    def _answer(self, realm: str, nonce: str, cnonce: str) -> bytes:
        secret = bytes.fromhex(_md5(b":".join(map(_to_hash, (self.user, realm, self._password)))))
        key = _md5(secret + f":{nonce}:{cnonce}".encode())

        def proof(a2: str) -> str:
            return _md5(f"{key}:{nonce}:00000001:{cnonce}:auth:{_md5(a2.encode())}".encode())

        self._expected = proof(f":{_DIGEST_URI}").encode()
        return (
            f'charset=utf-8,username="{_quoted(self.user)}",realm="{_quoted(realm)}",nonce="{_quoted(nonce)}",'
            f'nc=00000001,cnonce="{cnonce}",digest-uri="{_DIGEST_URI}",maxbuf={_MAX_BUFFER},'
            f"response={proof(f'AUTHENTICATE:{_DIGEST_URI}')},qop=auth"
        ).encode()


def _check_user(user: object, password: object) -> None:
    if not isinstance(user, str) or not isinstance(password, str):
        raise TypeError(f"user and password are str, not {type(user).__name__} and {type(password).__name__}")
    if not user:
        raise ValueError("the user is empty")
    if any("\ud800" <= character <= "\udfff" for character in user + password):
        raise ValueError("the user or the password contains half a character, a surrogate, and has no UTF-8 form")


def _md5(data: bytes) -> str:
    import hashlib  # few programs use SASL

    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def _to_hash(text: str) -> bytes:
    """Return the bytes of `text` to hash: ISO 8859-1 if it can represent the text, else UTF-8 (RFC 2831, 2.1.2.1)."""
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode()


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _shortened(token: bytes) -> str:
    """Return the beginning of a server's token, as messages show it."""
    return repr(token) if len(token) <= _SHOWN else f"{token[:_SHOWN]!r} and {len(token) - _SHOWN} bytes more"


def _directives(token: bytes) -> dict[str, str]:
    try:
        text = token.decode()
    except UnicodeDecodeError:
        raise AuthFailedError(f"not a token of DIGEST-MD5: {_shortened(token)}") from None
    fields: dict[str, str] = {}
    at = 0
    while at < len(text):
        found = re.compile(_DIRECTIVE).match(text, at)
        if found is None:
            raise AuthFailedError(f"not a token of DIGEST-MD5: {_shortened(token)}")
        name, quoted, plain = found.groups()
        fields.setdefault(name.lower(), plain if quoted is None else re.sub(r"\\(.)", r"\1", quoted))
        at = found.end()
    return fields
