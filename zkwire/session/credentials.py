"""The credentials of a session, which are sent on every connection before all other requests, in a fixed order.

The server keeps the identities of a client per connection and not per session, so each new connection must show them
again.
"""

import asyncio
import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import ParamSpec, TypeVar

from zkwire.errors import ServerError, SessionError
from zkwire.session.guaranteed_delete import ignored
from zkwire.session.request_queue import RequestTooLargeError
from zkwire.wire.connection import Call
from zkwire.wire.requests import AuthRequest

P = ParamSpec("P")
R = TypeVar("R")


def scrub_traceback(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate `function` so that the traceback of its TypeError or ValueError contains no local variable of it.

    Some programs log tracebacks together with the local variables of each function, which may be secrets.
    """

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except (TypeError, ValueError) as error:
            refusal = error
        del args, kwargs
        # The error in whose handling this one was raised has a traceback with the same variables.
        refusal.__cause__ = refusal.__context__ = None
        try:
            raise refusal.with_traceback(None)
        finally:
            del refusal  # the traceback contains this frame: do not leave a circle for the garbage collector

    return call


@dataclass(frozen=True, slots=True)
class Identity:
    """The scheme and the data of a credential, as for `Client.add_auth`; the data is a secret, which no repr shows."""

    scheme: str
    data: bytes = field(repr=False)


class Credential:
    """One credential; it is itself the waiter of each auth request that shows it.

    Args:
        identity: What to show.
        refused: Called with what the server does and its error, when it refuses the credential.

    Attributes:
        accepted: Done when the server has accepted the credential for the first time.
        shown: The last call that shows it, None if there was none.
        is_forgotten: Whether its request, if it is still in the queue, is not to be sent.
    """

    def __init__(self, identity: Identity, refused: Callable[[str, ServerError], None]) -> None:
        self.accepted: asyncio.Future[None] = ignored(asyncio.get_running_loop().create_future())
        self._identity = identity
        self._refused = refused
        self.shown: Call | None = None
        self.is_forgotten = False

    def call(self) -> Call:
        """Return a fresh call that shows it."""
        self.shown = Call(self.request(), self)
        return self.shown

    def request(self) -> AuthRequest:
        """Return the request that shows it."""
        return AuthRequest(0, self._identity.scheme, self._identity.data)

    # -- the waiter of its requests ---------------------------------------------------------------------------------

    def done(self) -> bool:
        """Whether the answer is of no interest any more."""
        return self.is_forgotten

    def set_result(self, result: object) -> None:
        """Take the server's acceptance, the first one or a later one."""
        if not self.accepted.done():
            self.accepted.set_result(None)

    def set_exception(self, error: BaseException) -> None:
        """Take the server's refusal.  A lost connection is ignored: the next connection shows the credential again."""
        if isinstance(error, ServerError):
            self._refused(f"refuses the credential of scheme {self._identity.scheme!r}", error)


class Credentials:
    """The credentials of one session; `given` are those to begin with."""

    def __init__(self, given: Iterable[Identity], refused: Callable[[str, ServerError], None]) -> None:
        self._refused = refused
        self.kept: list[Credential] = [Credential(identity, refused) for identity in given]

    async def add(self, identity: Identity, send: Callable[[Call], None] | None) -> None:
        """Add one, and return once a server has accepted it; without `send`, the next connection shows it.

        Cancellation: one that was sent stays, because the server may have accepted it, and later requests rely on it.
        """
        credential = Credential(identity, self._refused)
        self.kept.append(credential)
        if send is not None:
            send(credential.call())
        try:
            await asyncio.shield(credential.accepted)
        except asyncio.CancelledError:
            if credential.shown is None or not credential.shown.xid:  # not sent
                credential.is_forgotten = True
                self.kept.remove(credential)
            raise

    def fail(self, error: SessionError) -> None:
        """Fail those that the server has not accepted yet: the session is over."""
        for credential in self.kept:
            if not credential.accepted.done():
                credential.accepted.set_exception(error.again())


@scrub_traceback
def checked(scheme: object, data: object, *, request_limit: int) -> Identity:
    """Return the credential of `scheme` and `data`.

    One that is larger than `request_limit`, in bytes, is refused here: it would break every later connection.
    Raises: TypeError, ValueError, without the values in the text: they may have changed places.
    """
    if isinstance(data, bytearray | memoryview):
        data = bytes(data)
    if not isinstance(scheme, str) or not isinstance(data, bytes):
        raise TypeError(f"a credential is a scheme and bytes, not {type(scheme).__name__} and {type(data).__name__}")
    if not scheme:
        raise ValueError("a credential needs a scheme, such as 'digest'")
    if ":" in scheme:
        raise ValueError("the scheme of a credential contains ':': give the scheme first, such as 'digest', then data")
    if scheme == "sasl":
        raise ValueError("SASL takes several messages, which auth cannot carry: use connect(..., sasl=...)")
    request = AuthRequest(0, scheme, data)
    size = Call(request).size
    if size > request_limit:
        raise RequestTooLargeError(request.operation, None, size, request_limit)
    return Identity(scheme, data)
