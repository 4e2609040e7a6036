"""Which failures to connect are final: the server cannot be used in the wanted way, however often it is tried.

Most failures pass: a server is starting, or its host is down.  A certificate that this client does not accept does not
become another one by trying again.  The session asks here what a failure means, and decides what follows from it.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from typing import Final

# The codes of OpenSSL for a certificate that is not accepted, and what to do about it.
_NOT_YET_VALID: Final = 9
_TRUST: Final = "; the context must trust its authority, see SSLContext.load_verify_locations"
_NAME: Final = "; the connect string must name the server as its certificate does"
_REMEDIES: Final = {18: _TRUST, 19: _TRUST, 20: _TRUST, 21: _TRUST, 62: _NAME, 64: _NAME}

# Alerts of a server that may accept the next handshake.
_PASSING_ALERTS: Final = {"INTERNAL_ERROR", "USER_CANCELLED"}
# Alerts about the certificate that this client has shown, or has not.
_CERTIFICATE_ALERTS: Final = {
    "ACCESS_DENIED",
    "BAD_CERTIFICATE",
    "CERTIFICATE_EXPIRED",
    "CERTIFICATE_REQUIRED",
    "CERTIFICATE_REVOKED",
    "CERTIFICATE_UNKNOWN",
    "NO_CERTIFICATE",
    "UNKNOWN_CA",
    "UNSUPPORTED_CERTIFICATE",
}
# The alert for no cipher in common; of some servers, up to TLS 1.2, also for no certificate.
_ANY_REASON: Final = "HANDSHAKE_FAILURE"
_SHOW: Final = (
    "if the server wants one, the context must hold a certificate that it trusts, see SSLContext.load_cert_chain"
)
# What OpenSSL says of bytes that are no TLS; which of these depends on its version.
_NO_TLS: Final = {"HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE", "WRONG_VERSION_NUMBER"}


class UnfitError(ConnectionError):
    """The server cannot be connected to in this way, however often it is tried."""


def unfit(failure: Exception) -> UnfitError | None:
    """Return what is wrong with a server if `failure`, of an attempt to connect, is final; None if it may pass."""
    if isinstance(failure, UnfitError):
        return failure
    if isinstance(failure, ssl.SSLCertVerificationError):
        wrong = _of_certificate(failure)
    elif type(failure) is ssl.SSLError:  # its other subclasses are for connections that were closed
        wrong = _of_tls(failure)
    else:
        return None
    if wrong is None:
        return None
    error = UnfitError(wrong)
    error.__cause__ = failure
    return error


def no_server(failures: Sequence[tuple[object, UnfitError]]) -> UnfitError:
    """Return the error of a client that no server is fit for; its cause is that of the last failure.

    Arguments: `failures`, of each server, whose "host:port" is the other member of the pair.
    """
    error = UnfitError(f"no session with {'; '.join(f'{address}: {failure}' for address, failure in failures)}")
    error.__cause__ = failures[-1][1].__cause__
    return error


def _of_certificate(failure: ssl.SSLCertVerificationError) -> str | None:
    if failure.verify_code == _NOT_YET_VALID:  # it will be, and the clock of one of the two machines may be set soon
        return None
    why = failure.verify_message.rstrip(".")
    return f"the server's certificate is not accepted: {why}{_REMEDIES.get(failure.verify_code, '')}"


def _of_tls(failure: ssl.SSLError) -> str | None:
    reason = failure.reason or str(failure)
    if reason in _NO_TLS:
        return "the server does not answer with TLS: the port may be one without TLS, or of another service"
    alert = reason.rpartition("ALERT_")[2]
    if alert in _PASSING_ALERTS:
        return None
    if alert in _CERTIFICATE_ALERTS:
        return f"the server refuses this client's certificate, or the lack of one ({_words(alert)}): {_SHOW}"
    if alert == _ANY_REASON:
        return f"the server refuses the TLS handshake: no cipher in common, or no certificate of this client: {_SHOW}"
    who = "the server refuses" if alert != reason else "OpenSSL gives up"
    return f"{who} the TLS handshake: {_words(alert)}"


def _words(reason: str) -> str:
    return reason.replace("_", " ").lower()
