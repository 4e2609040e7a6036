"""Error codes, and every exception that zkwire raises.  Imports nothing, so that every other module can import it.

    ZooKeeperError
    ├─ ServerError                  the server refused the request; one subclass per code
    │    ├─ NoNodeError  NodeExistsError  BadVersionError  NotEmptyError  NoAuthError ...
    │    └─ TransactionError        one operation of a transaction was refused, so none was applied
    ├─ ConnectionLostError          .maybe_applied: can the write have happened?
    ├─ NoAnswerError                a TimeoutError: no answer within the `request_timeout` of the client
    ├─ SessionError
    │    ├─ SessionExpiredError     the session and its ephemeral nodes are gone
    │    ├─ AuthFailedError         the server refused the credentials
    │    └─ SessionClosedError      the client was closed by its owner
    └─ ProtocolError                the peer broke the protocol; ends the connection, not the session

Misuse by the caller is never one of these: it raises ValueError or TypeError, before anything is sent.
"""

from __future__ import annotations

# The public errors: all are names of `zkwire`, too.
__all__ = [
    "AuthFailedError",
    "AuthenticationRequiredError",
    "BadArgumentsError",
    "BadVersionError",
    "ConnectionLostError",
    "DataInconsistencyError",
    "EphemeralOnLocalSessionError",
    "InvalidACLError",
    "MarshallingError",
    "NewConfigNoQuorumError",
    "NoAnswerError",
    "NoAuthError",
    "NoChildrenForEphemeralsError",
    "NoNodeError",
    "NoWatcherError",
    "NodeExistsError",
    "NotEmptyError",
    "NotReadOnlyError",
    "OperationTimeoutError",
    "ProtocolError",
    "QuotaExceededError",
    "ReconfigDisabledError",
    "ReconfigInProgressError",
    "RequestTimeoutError",
    "RuntimeInconsistencyError",
    "ServerError",
    "SessionClosedError",
    "SessionError",
    "SessionExpiredError",
    "SessionMovedError",
    "SystemServerError",
    "ThrottledError",
    "TransactionError",
    "UnimplementedError",
    "ZooKeeperError",
]

# Codes that a server can send but that have no class here, because they end the connection or the session instead of
# failing one request.  Only their names are needed, for messages.
_OTHER_CODES: dict[int, tuple[str, str]] = {
    -12: ("UnknownSession", "the server does not know the session"),
    -112: ("SessionExpired", "the session is being closed"),
    -115: ("AuthFailed", "the server does not accept the credentials"),
}

_WITHOUT_TEXT: dict[type[BaseException], str] = {
    TimeoutError: "no answer in time",
    ConnectionResetError: "the connection was reset",
    ConnectionAbortedError: "the connection was aborted",
    ConnectionRefusedError: "the connection was refused",
    BrokenPipeError: "the connection was closed",
}


def described(operation: str, path: str | None) -> str:
    """Return a request as messages name it: the operation, and the path if there is one."""
    return operation if path is None else f"{operation} {path}"


def explained(error: BaseException) -> str:
    """Return the text of `error`, or words for its class: many errors of asyncio and of sockets have no text."""
    return str(error) or _WITHOUT_TEXT.get(type(error), f"{type(error).__name__} without a text")


def _without_init(cls: type[BaseException], *args: object) -> BaseException:
    error = cls.__new__(cls, *args)
    error.args = args  # a TimeoutError does not get them by __new__
    return error


class ZooKeeperError(Exception):
    """The base class of everything that zkwire and its recipes raise, except for misuse by the caller."""

    def __reduce__(self) -> tuple[object, ...]:
        # By default copy and pickle call the class with `args`.  Our classes take other arguments than they store in
        # `args`, so the copy is made without __init__ and gets the attributes from __dict__.
        return _without_init, (type(self), *self.args), self.__dict__


class ServerError(ZooKeeperError):
    """The server refused a request.

    `ServerError.from_code` picks the subclass for a code.

    Args:
        code: The error code of the reply header.
        path: The znode that the request named, as the caller wrote it.
        operation: The request's name in ZooKeeper's own terms.
        server: The server that refused, as "host:port".
        hint: What the caller can do about it, in place of the class's own hint.

    Attributes:
        is_transient: Whether the refusal says something about the server's present state and nothing about the node:
            the same request may succeed a moment later.
    """

    code: int = 0
    reason: str = "refused by the server"
    hint: str = ""
    is_transient: bool = False

    _by_code: dict[int, type[ServerError]] = {}  # noqa: RUF012

    def __init_subclass__(cls, *, code: int | None = None, reason: str = "") -> None:
        if code is None:
            return
        if code in ServerError._by_code:
            raise TypeError(f"error code {code} has two classes: {ServerError._by_code[code].__name__}, {cls.__name__}")
        ServerError._by_code[code] = cls
        cls.code = code
        cls.reason = reason

    def __init__(
        self, code: int, path: str | None = None, *, operation: str = "request", server: str = "", hint: str = ""
    ) -> None:
        super().__init__(code, path)
        self.code = code
        self.path = path
        self.operation = operation
        self.server = server
        if hint:
            self.hint = hint

    @classmethod
    def from_code(
        cls, code: int, path: str | None = None, *, operation: str = "request", server: str = "", hint: str = ""
    ) -> ServerError:
        """Return the error for `code`: an instance of the code's own class if there is one, else a ServerError.

        Args:
            code: The error code of the reply header.
            path: As for ServerError.
            operation: As for ServerError.
            server: As for ServerError.
            hint: As for ServerError.

        Returns:
            The error, to be raised.
        """
        return cls._by_code.get(code, ServerError)(code, path, operation=operation, server=server, hint=hint)

    def __str__(self) -> str:
        name, reason = type(self).__name__.removesuffix("Error"), self.reason
        if type(self) is ServerError:
            name, reason = _OTHER_CODES.get(self.code, (name, reason))
        where = f" {self.path}" if self.path is not None else ""
        by = f" by {self.server}" if self.server else ""
        hint = f" ({self.hint})" if self.hint else ""
        return f"{self.operation}{where}: {reason} [{name} {self.code}{by}]{hint}"


class SystemServerError(ServerError, code=-1, reason="the server had an internal error"):
    """The server had an internal error (code -1)."""

    is_transient = True


class RuntimeInconsistencyError(
    ServerError, code=-2, reason="not carried out, because another operation of the transaction was refused"
):
    """The operation was not reached, because an earlier one of its transaction was refused (code -2)."""


class DataInconsistencyError(ServerError, code=-3, reason="the server found its data inconsistent"):
    """The server found its data inconsistent (code -3)."""


class MarshallingError(ServerError, code=-5, reason="the server could not decode the request"):
    """The server could not decode the request (code -5)."""

    hint = "is the server older than the operation?"


class UnimplementedError(ServerError, code=-6, reason="the server does not know this operation, or it is off"):
    """The server does not know the operation, or has it switched off (code -6).

    A server that does not know the operation also closes the connection.  Of the requests that were sent after it,
    reads are sent again and writes fail with ConnectionLostError.
    """


class OperationTimeoutError(ServerError, code=-7, reason="the server gave up on the operation"):
    """The server gave up on the operation (code -7)."""

    is_transient = True


class BadArgumentsError(ServerError, code=-8, reason="the server rejected the arguments"):
    """The server rejected the path, the flags, the TTL or another argument (code -8)."""


class NewConfigNoQuorumError(ServerError, code=-13, reason="no quorum of the new configuration follows the leader"):
    """No quorum of the new configuration is connected (code -13)."""

    hint = "first start the servers that join and let them catch up"


class ReconfigInProgressError(ServerError, code=-14, reason="another reconfiguration is under way"):
    """Another reconfiguration is under way (code -14)."""

    hint = "try again when it has finished"


class NoNodeError(ServerError, code=-101, reason="no such node, or no such parent"):
    """The node, or the parent of the node to create, does not exist (code -101)."""


class NoAuthError(ServerError, code=-102, reason="the ACL does not allow the operation"):
    """The node's ACL does not allow the operation to this session's identities (code -102)."""


class BadVersionError(ServerError, code=-103, reason="the node has another version"):
    """The node's version differs from the version in the request (code -103)."""

    hint = "read the node again, then decide again"


class NoChildrenForEphemeralsError(ServerError, code=-108, reason="the parent is ephemeral and cannot have children"):
    """An ephemeral node cannot have children (code -108)."""


class NodeExistsError(ServerError, code=-110, reason="the node exists already"):
    """The node to create exists already (code -110)."""


class NotEmptyError(ServerError, code=-111, reason="the node has children"):
    """The node to delete has children (code -111)."""


class InvalidACLError(
    ServerError, code=-114, reason="the ACL is empty, or names a scheme or an id that the server cannot check"
):
    """The ACL is empty, or names a scheme or an id that the server cannot check (code -114)."""


class SessionMovedError(ServerError, code=-118, reason="the session has moved to another server"):
    """The session has moved to another server (code -118)."""


class NotReadOnlyError(ServerError, code=-119, reason="the server accepts only reads: it has no quorum"):
    """The server has lost its quorum and accepts only reads (code -119)."""

    is_transient = True


class EphemeralOnLocalSessionError(
    ServerError, code=-120, reason="the session is local to one server and cannot own ephemeral nodes"
):
    """The session is local to one server and cannot own ephemeral nodes (code -120)."""


class NoWatcherError(ServerError, code=-121, reason="the server has no such watch"):
    """The server has no such watch of this connection (code -121)."""


class RequestTimeoutError(ServerError, code=-122, reason="the request timed out"):
    """The request timed out at the server (code -122)."""

    is_transient = True


class ReconfigDisabledError(ServerError, code=-123, reason="reconfiguration is switched off on this server"):
    """Reconfiguration is switched off on this server (code -123)."""

    hint = "start the servers with reconfigEnabled=true"


class AuthenticationRequiredError(
    ServerError, code=-124, reason="the server requires authentication with a scheme that it enforces"
):
    """The server requires authentication, and closes the connection (code -124)."""


class QuotaExceededError(ServerError, code=-125, reason="a hard quota forbids the write"):
    """A hard quota forbids the write (code -125)."""

    hint = "delete nodes, or raise the limit: what a transaction deletes makes no room for what it creates"


class ThrottledError(ServerError, code=-127, reason="the server is overloaded and did not carry out the request"):
    """The server is overloaded and did not carry out the request (code -127)."""

    hint = "try again later"
    is_transient = True


def is_transient(answer: object) -> bool:
    """Return whether `answer`, a result or an error, is a refusal after which the same request may succeed."""
    return isinstance(answer, ServerError) and answer.is_transient


class TransactionError(ServerError):
    """One operation of a transaction was refused, so none was carried out.

    Args:
        cause: The error of the refused operation.
        index: Its position in the transaction, from 0.
        results: One entry per operation: None for each operation before the refused one (it would have succeeded), a
            ServerError for the refused one and for each operation after it.
    """

    def __init__(self, cause: ServerError, index: int, results: list[ServerError | None]) -> None:
        super().__init__(cause.code, cause.path, operation=cause.operation, server=cause.server, hint=cause.hint)
        self.cause = cause
        self.index = index
        self.results = results
        self.reason: str = cause.reason
        self.__cause__: BaseException | None = cause

    def __str__(self) -> str:
        return f"nothing was carried out: operation {self.index} of the transaction was refused: {self.cause}"


class _RequestError(ZooKeeperError):
    """The base of the errors whose text may name the request: `operation` and `path`."""

    def __init__(self, message: str, *, operation: str = "", path: str | None = None) -> None:
        super().__init__(message)
        self.operation = operation
        self.path = path

    def __str__(self) -> str:
        message = super().__str__()
        return f"{described(self.operation, self.path)}: {message}" if self.operation else message


class _UnansweredError(_RequestError):
    """The base of the errors after which it may be unknown whether a write was carried out: `maybe_applied`."""

    def __init__(self, message: str, *, maybe_applied: bool, operation: str = "", path: str | None = None) -> None:
        super().__init__(message, operation=operation, path=path)
        self.maybe_applied = maybe_applied


class ConnectionLostError(_UnansweredError):
    """The connection broke before the reply came.

    The client does not send a write twice: find out what happened before you repeat it.

    Args:
        message: What happened.
        maybe_applied: Whether the write may have happened, because its frame had already been given to the socket.
        operation: The request's name in ZooKeeper's own terms, "" if unknown.
        path: The znode that the request named, as the caller wrote it, None if unknown.
    """


class NoAnswerError(_UnansweredError, TimeoutError):
    """A request was not answered within the `request_timeout` of `connect`: it counts as cancelled.

    What was not sent never is.  An ephemeral, `protected` or `recover` create that was sent is undone: begin again, and
    do not take a node that you find for yours, because it may be removed a moment later.  Any other write that was sent
    may or may not be carried out: look after a `sync`.

    Args:
        message: As for ConnectionLostError.
        maybe_applied: Whether it is a write, or an identity, that was sent.
        operation: As for ConnectionLostError.
        path: As for ConnectionLostError.
    """


class SessionError(ZooKeeperError):
    """The session is over: every later request in it fails."""

    def _again(self) -> SessionError:
        """Return a fresh copy of this error to raise.

        Many callers get the same end of a session.  If they all raised one object, each would add its traceback to it.

        Returns:
            The copy.
        """
        return type(self)(*self.args)


class SessionExpiredError(SessionError):
    """The session expired, as the ensemble said or as the client's own clock shows; its ephemeral nodes are deleted."""


class AuthFailedError(SessionError):
    """The server refused the credentials; the session cannot be used."""


class SessionClosedError(SessionError):
    """The client was closed; make a new one with zkwire.connect."""


class ProtocolError(_RequestError):
    """The peer sent bytes that are no ZooKeeper reply; the connection is closed, the session goes to another host.

    Args:
        message: What was wrong.
        operation: As for ConnectionLostError.
        path: As for ConnectionLostError.
    """
