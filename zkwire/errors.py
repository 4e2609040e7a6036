"""Error codes and the exceptions that callers meet.  Imports nothing of zkwire, so that every other module can raise.

    ZooKeeperError
    ├─ ServerError                  the server refused the request; one subclass per code
    │    ├─ NoNodeError  NodeExistsError  BadVersionError  NotEmptyError  NoAuthError ...
    │    └─ TransactionError        one operation of a transaction was refused, so none was carried out
    ├─ ConnectionLostError          .maybe_applied: can the write have happened?
    ├─ SessionError
    │    ├─ SessionExpiredError     the session and its ephemeral nodes are gone
    │    ├─ AuthFailedError         the server refused the credentials
    │    └─ SessionClosedError      the client was closed by its owner
    └─ ProtocolError                the peer sent nonsense; it ends a connection, not a session

Misuse by the caller is never one of these: it raises ValueError or TypeError before anything is sent.
"""

from __future__ import annotations

from typing import Self

# Codes that a server can send and that no class here stands for: the connection or the session ends with them.
_OTHER_CODES: dict[int, tuple[str, str]] = {
    -12: ("UnknownSession", "the server does not know the session"),
    -112: ("SessionExpired", "the session is being closed"),
    -115: ("AuthFailed", "the server does not accept the credentials"),
}

# What came later than ZooKeeper 3.4, and with which version.
_SINCE: dict[str, str] = {
    "create2": "3.5.0",
    "reconfig": "3.5.0",
    "checkWatches": "3.5.0",
    "removeWatches": "3.5.0",
    "createContainer": "3.5.1",
    "createTTL": "3.5.3",
    "multiRead": "3.6.0",
    "getEphemerals": "3.6.0",
    "getAllChildrenNumber": "3.6.0",
    "setWatches2": "3.6.0",
    "addWatch": "3.6.0",
    "whoAmI": "3.7.0",
}

# What these need beside the version, or what does instead.
_AND: dict[str, str] = {
    "createTTL": ", started with -Dzookeeper.extendedTypesEnabled=true",
    "reconfig": ", and an ensemble: a single server has no members to change",
    "multiRead": "; Client.pipeline reads from older ones",
}

# What to do about a code that an operation got, where it is not the same for all operations.
_HINTS: dict[tuple[int, str], str] = {
    (-8, "delete"): "the root and /zookeeper cannot be deleted",
    (-8, "reconfig"): "a server is 'server.4=host:port:port:role;port', and enough must remain that vote",
    **{(-6, name): f"it needs ZooKeeper {since} or newer{_AND.get(name, '')}" for name, since in _SINCE.items()},
}


def _bare(cls: type[BaseException], *args: object) -> BaseException:
    return cls.__new__(cls, *args)


class ZooKeeperError(Exception):
    """The root of everything that zkwire and its recipes raise about the world outside the caller."""

    def __reduce__(self) -> tuple[object, ...]:
        # An exception is copied and pickled by calling its class with `args`, which is not what ours are made with.
        return _bare, (type(self), *self.args), self.__dict__


class ServerError(ZooKeeperError):
    """The server refused a request.

    Arguments: `code`, the error code of the reply header; `path`, the znode that the request named, as the caller
    wrote it; `operation`, the request's name in ZooKeeper's own terms; `server`, "host:port" of the refuser.

    `is_transient` is whether the refusal says nothing of the node: what is asked again, a moment later, may be
    answered.
    `ServerError.from_code` picks the subclass that stands for a code.
    """

    code: int = 0
    reason = "refused by the server"
    hint = ""
    is_transient = False

    _by_code: dict[int, type[ServerError]] = {}  # noqa: RUF012

    def __init_subclass__(cls) -> None:
        code = cls.__dict__.get("code")
        if code is None:
            return
        if code in ServerError._by_code:
            raise TypeError(f"error code {code} has two classes: {ServerError._by_code[code].__name__}, {cls.__name__}")
        ServerError._by_code[code] = cls

    def __init__(self, code: int, path: str | None = None, *, operation: str = "request", server: str = "") -> None:
        super().__init__(code, path)
        self.code = code
        self.path = path
        self.operation = operation
        self.server = server
        if (code, operation) in _HINTS:
            self.hint = _HINTS[code, operation]

    @classmethod
    def from_code(
        cls, code: int, path: str | None = None, *, operation: str = "request", server: str = ""
    ) -> ServerError:
        """Return the error for `code`: its own class when there is one, a plain ServerError otherwise."""
        return cls._by_code.get(code, ServerError)(code, path, operation=operation, server=server)

    def __str__(self) -> str:
        name, reason = type(self).__name__.removesuffix("Error"), self.reason
        if type(self) is ServerError:
            name, reason = _OTHER_CODES.get(self.code, (name, reason))
        where = f" {self.path}" if self.path is not None else ""
        by = f" by {self.server}" if self.server else ""
        hint = f" ({self.hint})" if self.hint else ""
        return f"{self.operation}{where}: {reason} [{name} {self.code}{by}]{hint}"


class SystemServerError(ServerError):
    """The server failed inside (code -1)."""

    code = -1
    reason = "the server failed inside"
    is_transient = True


class RuntimeInconsistencyError(ServerError):
    """An operation of a transaction that was not reached, because an earlier one was refused (code -2)."""

    code = -2
    reason = "not carried out, because another operation of the transaction was refused"


class DataInconsistencyError(ServerError):
    """The server found its data inconsistent (code -3)."""

    code = -3
    reason = "the server found its data inconsistent"


class MarshallingError(ServerError):
    """The server could not decode the request (code -5)."""

    code = -5
    reason = "the server could not decode the request"
    hint = "is the server older than the operation?"


class UnimplementedError(ServerError):
    """The server does not know the operation, or has it switched off (code -6).

    A server that does not know it closes the connection as well: what was in flight behind it is repeated (reads) or
    fails with ConnectionLostError (writes).
    """

    code = -6
    reason = "the server does not know this operation, or has it switched off"


class OperationTimeoutError(ServerError):
    """The server gave up on the operation (code -7)."""

    code = -7
    reason = "the server gave up on the operation"
    is_transient = True


class BadArgumentsError(ServerError):
    """The server found the path, the flags or the TTL unfit (code -8)."""

    code = -8
    reason = "the server found the arguments unfit"


class NewConfigNoQuorumError(ServerError):
    """No quorum of the new configuration is connected (code -13)."""

    code = -13
    reason = "no quorum of the new configuration is connected to the leader"
    hint = "start the servers that join, and let them catch up, before"


class ReconfigInProgressError(ServerError):
    """Another reconfiguration is under way (code -14)."""

    code = -14
    reason = "another reconfiguration is under way"
    hint = "try again when it is through"


class NoNodeError(ServerError):
    """The node, or the parent of the node to create, does not exist (code -101)."""

    code = -101
    reason = "no such node, or no such parent"


class NoAuthError(ServerError):
    """The node's ACL does not allow this to the session's identities (code -102)."""

    code = -102
    reason = "the ACL does not allow it"


class BadVersionError(ServerError):
    """The node's version is not the one that the request named (code -103)."""

    code = -103
    reason = "the version is another one"
    hint = "read the node again and decide anew"


class NoChildrenForEphemeralsError(ServerError):
    """An ephemeral node cannot have children (code -108)."""

    code = -108
    reason = "the parent is ephemeral and cannot have children"


class NodeExistsError(ServerError):
    """The node to create exists already (code -110)."""

    code = -110
    reason = "the node exists already"


class NotEmptyError(ServerError):
    """The node to delete has children (code -111)."""

    code = -111
    reason = "the node has children"


class InvalidACLError(ServerError):
    """The ACL is empty or names something that the server cannot check (code -114)."""

    code = -114
    reason = "the ACL is empty, or names a scheme or an id that the server cannot check"


class SessionMovedError(ServerError):
    """The session has moved to another server (code -118)."""

    code = -118
    reason = "the session has moved to another server"


class NotReadOnlyError(ServerError):
    """The server has lost its quorum and serves reads only (code -119)."""

    code = -119
    reason = "the server serves reads only: it has no quorum"
    is_transient = True


class EphemeralOnLocalSessionError(ServerError):
    """The session is local to one server and cannot own ephemeral nodes (code -120)."""

    code = -120
    reason = "the session is local to one server and cannot own ephemeral nodes"


class NoWatcherError(ServerError):
    """The server has no such watch of this connection (code -121)."""

    code = -121
    reason = "the server has no such watch"


class RequestTimeoutError(ServerError):
    """The request timed out at the server (code -122)."""

    code = -122
    reason = "the request timed out"
    is_transient = True


class ReconfigDisabledError(ServerError):
    """Reconfiguration is switched off on this server (code -123)."""

    code = -123
    reason = "reconfiguration is switched off on this server"
    hint = "start the servers with reconfigEnabled=true"


class AuthenticationRequiredError(ServerError):
    """The server serves only who has authenticated, and closes the connection (code -124)."""

    code = -124
    reason = "the server serves only who has authenticated with a scheme that it enforces"


class QuotaExceededError(ServerError):
    """A hard quota forbids the write (code -125)."""

    code = -125
    reason = "a hard quota forbids the write"


class ThrottledError(ServerError):
    """The server is overloaded and did not carry the request out (code -127)."""

    code = -127
    reason = "the server is overloaded and did not carry it out"
    hint = "try again later"
    is_transient = True


class TransactionError(ServerError):
    """One operation of a transaction was refused, so that none was carried out.

    Arguments: `cause`, the error of the refused operation; `index`, its place in the transaction, from 0;
    `results`, one entry per operation: None for those before the refused one (they would have succeeded), a
    ServerError for it and for those behind it.
    """

    def __init__(self, cause: ServerError, index: int, results: list[ServerError | None]) -> None:
        super().__init__(cause.code, cause.path, operation=cause.operation, server=cause.server)
        self.cause = cause
        self.index = index
        self.results = results
        self.reason = cause.reason
        self.hint = cause.hint
        self.__cause__ = cause

    def __str__(self) -> str:
        return f"nothing was carried out: operation {self.index} of the transaction was refused: {self.cause}"


class ConnectionLostError(ZooKeeperError):
    """The connection broke before the answer came.

    `maybe_applied` tells whether the write may have happened: True once its frame reached the socket.  Nothing is
    sent again by the client; look before you repeat a write.
    """

    def __init__(self, message: str, *, maybe_applied: bool) -> None:
        super().__init__(message)
        self.maybe_applied = maybe_applied


class SessionError(ZooKeeperError):
    """The session is over, so that nothing more can be asked in its name."""

    def again(self) -> Self:
        """Return a fresh copy of this error to raise.

        Many callers get the same end of a session.  If they all raised one object, each would add its traceback to it.
        """
        return type(self)(*self.args)


class SessionExpiredError(SessionError):
    """The ensemble ended the session, or this client's own clock says that it must have: its ephemeral nodes go."""


class AuthFailedError(SessionError):
    """The server refused the credentials; the session cannot be used."""


class SessionClosedError(SessionError):
    """The client was closed; make a new one with zkwire.connect."""


class ProtocolError(ZooKeeperError):
    """The peer sent bytes that are no ZooKeeper reply; the connection is dropped, the session goes to the next host."""
