"""The credentials of a session, which are sent on every connection before all other requests, in a fixed order.

The server keeps the identities of a client per connection and not per session, so each new connection must show them
again.
"""

import asyncio
import functools
from collections.abc import Callable, Iterable
from typing import NamedTuple, ParamSpec, TypeVar

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


class Identity(NamedTuple):
    """The scheme and the data of a credential, as for `Client.add_auth`; the data is a secret, which no repr shows."""

    scheme: str
    data: bytes

    def __repr__(self) -> str:
        return f"Identity(scheme={self.scheme!r})"


class Credential:
    """One credential; it is itself the waiter of each auth request that shows it.

    Args:
        identity: What to show.
        refused: Called with what the server does when it refuses the credential.

    Attributes:
        request: The request that shows it.
        accepted: Done when the server has accepted the credential for the first time.
        shown: The last call that shows it, None if there was none.
        callers: How many want it to be shown, 0 if its request, which may still be in the queue, is not to be sent.
    """

    def __init__(self, identity: Identity, refused: Callable[[str], None]) -> None:
        self.accepted: asyncio.Future[None] = ignored(asyncio.get_running_loop().create_future())
        self.request: AuthRequest = AuthRequest(0, identity.scheme, identity.data)
        self._refused = refused
        self.shown: Call | None = None
        self.callers = 1

    def call(self) -> Call:
        """Return a fresh call that shows it."""
        self.shown = Call(self.request, self)
        return self.shown

    # -- the waiter of its requests ---------------------------------------------------------------------------------

    def done(self) -> bool:
        """Whether the answer is of no interest any more."""
        return not self.callers

    def set_result(self, result: object) -> None:
        """Take the server's acceptance, the first one or a later one."""
        if not self.accepted.done():
            self.accepted.set_result(None)

    def set_exception(self, error: BaseException) -> None:
        """Take the server's refusal.  A lost connection is ignored: the next connection shows the credential again."""
        if isinstance(error, ServerError):
            self._refused(f"refuses the credential of scheme {self.request.scheme!r}")


class Credentials:
    """The credentials of one session, each of them once; `given` are those to begin with."""

    def __init__(self, given: Iterable[Identity], refused: Callable[[str], None]) -> None:
        self._refused = refused
        self.kept: dict[Identity, Credential] = {identity: Credential(identity, refused) for identity in given}

    async def add(self, identity: Identity, send: Callable[[Call], None] | None) -> None:
        """Add one, unless it is kept, and return once a server has accepted it.

        Without `send`, the next connection shows it.
        Cancellation: one that was sent stays, because the server may have accepted it, and later requests rely on it.
        """
        if credential := self.kept.get(identity):
            credential.callers += 1
        else:
            credential = self.kept[identity] = Credential(identity, self._refused)
            if send is not None:
                send(credential.call())
        try:
            await asyncio.shield(credential.accepted)
        except asyncio.CancelledError:
            if credential.shown is None or not credential.shown.xid:  # not sent
                credential.callers -= 1
                if not credential.callers:
                    del self.kept[identity]
            raise

    def fail(self, error: SessionError) -> None:
        """Fail those that the server has not accepted yet: the session is over."""
        for credential in self.kept.values():
            if not credential.accepted.done():
                credential.accepted.set_exception(error._again())


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
