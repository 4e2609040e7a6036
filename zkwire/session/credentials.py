"""Credentials of a session: each is shown on every connection, before anything else, in the order of their adding.

Identities belong to a connection and not to the session, so that the server forgets them with each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator

from zkwire.errors import ServerError, SessionError
from zkwire.wire.connection import Call
from zkwire.wire.requests import AuthRequest


class Credential:
    """One credential, and who waits for its first answer; it stands as the waiter of each of its calls."""

    def __init__(self, scheme: str, data: bytes, refused: Callable[[Credential, ServerError], None]) -> None:
        self.scheme = scheme
        self.accepted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._data = data
        self._refused = refused
        self._call: Call | None = None
        self._is_forgotten = False

    def call(self) -> Call:
        """Return a fresh request that shows it."""
        self._call = Call(AuthRequest(0, self.scheme, self._data), self)
        return self._call

    @property
    def was_sent(self) -> bool:
        """Whether the last call of it has been written."""
        return self._call is not None and self._call.xid != 0

    def forget(self) -> None:
        """Let the call that waits in line never be sent."""
        self._is_forgotten = True

    def fail(self, error: SessionError) -> None:
        """Tell whoever waits that the session is over."""
        if not self.accepted.done():
            self.accepted.set_exception(type(error)(*error.args))
            self.accepted.exception()  # nobody need wait for it

    def done(self) -> bool:
        """Whether the answer is of no interest."""
        return self._is_forgotten

    def set_result(self, result: object) -> None:
        """It was accepted, for the first time or again."""
        if not self.accepted.done():
            self.accepted.set_result(None)

    def set_exception(self, error: BaseException) -> None:
        """It was refused; a lost connection or session is none of its affair: it will be shown to the next one."""
        if isinstance(error, ServerError):
            self._refused(self, error)


class Credentials:
    """The credentials of one session.

    Arguments: `given`, those to begin with, each a scheme and its data; `refused`, whom to tell.
    """

    def __init__(self, given: Iterable[tuple[str, bytes]], refused: Callable[[Credential, ServerError], None]) -> None:
        self._refused = refused
        self._all = [Credential(scheme, data, refused) for scheme, data in given]

    def __iter__(self) -> Iterator[Credential]:
        return iter(self._all)

    def add(self, scheme: str, data: bytes) -> Credential:
        """Remember one more."""
        credential = Credential(scheme, data, self._refused)
        self._all.append(credential)
        return credential

    def remove(self, credential: Credential) -> None:
        """Forget one that was never shown."""
        credential.forget()
        self._all.remove(credential)

    def fail(self, error: SessionError) -> None:
        """Tell all who wait that the session is over."""
        for credential in self._all:
            credential.fail(error)


def checked(scheme: object, data: object) -> tuple[str, bytes]:
    """Return the scheme and the data of a credential.  Raises: TypeError, ValueError."""
    if not isinstance(scheme, str) or not isinstance(data, bytes):
        raise TypeError(f"a credential is a scheme and bytes, not {type(scheme).__name__} and {type(data).__name__}")
    if not scheme:
        raise ValueError("a credential needs a scheme, such as 'digest'")
    if scheme == "sasl":
        raise ValueError("SASL is an exchange and no packet: use connect(..., sasl=...)")
    return scheme, data
