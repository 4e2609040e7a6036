"""The exchange of SASL tokens with a server, on a link after the handshake and before any other request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from zkwire.errors import AuthFailedError, ProtocolError
from zkwire.session.hosts import Address
from zkwire.session.sasl import SaslMechanism
from zkwire.session.transport import Link
from zkwire.wire.connection import Call
from zkwire.wire.requests import SaslRequest

_LARGEST_TOKEN: Final = 64 * 1024  # bytes: more than any mechanism sends, and little to parse


async def authenticate(mechanism: SaslMechanism, link: Link, address: Address) -> None:
    """Exchange tokens on `link`, to the server at `address`, until `mechanism` has no more to send.

    Raises: AuthFailedError when the server or the mechanism refuses; ProtocolError for a token of more than 64 KiB; the
    reason of the loss when the link is lost.
    """
    loop = asyncio.get_running_loop()
    failed = f"no authentication by SASL with {address}"
    request = _ask(mechanism.start, address.host, failed)
    while request is not None:
        answer: asyncio.Future[Any] = loop.create_future()
        link.connection.send(Call(request, answer), loop.time())
        link.flush()
        await asyncio.wait({answer, link.closed}, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise link.closed.result()
        refusal = answer.exception()
        if refusal is not None:
            raise AuthFailedError(f"{failed}: the server refuses: {refusal}") from refusal
        token = answer.result().token or b""
        if len(token) > _LARGEST_TOKEN:
            raise ProtocolError(f"a SASL token of {len(token)} bytes, where {_LARGEST_TOKEN} are accepted")
        request = _ask(mechanism.step, token, failed)


def _ask(method: Callable[[Any], bytes | None], argument: object, failed: str) -> SaslRequest | None:
    """Return the request with the next token of a mechanism, which may be the user's own code; None at the end.

    The token may contain a password: no repr shows it, and no local variable when an error is raised.
    Raises: AuthFailedError for any exception of the mechanism, and for a token that is no bytes.
    """
    try:
        token = method(argument)
    except Exception as error:
        raise AuthFailedError(f"{failed}: {error}") from error
    if token is None:
        return None
    if isinstance(token, bytes):
        return SaslRequest(token)
    kind = type(token).__name__
    del token
    raise AuthFailedError(f"{failed}: the mechanism must return bytes or None, and returned {kind}")
