"""The tree of exceptions, what their messages say, and that they survive being copied and pickled."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkwire import errors
from zkwire.errors import (
    AuthFailedError,
    ConnectionLostError,
    NodeExistsError,
    NoNodeError,
    ProtocolError,
    RuntimeInconsistencyError,
    ServerError,
    SessionClosedError,
    SessionError,
    SessionExpiredError,
    ThrottledError,
    TransactionError,
    ZooKeeperError,
)
from zkwire.wire import multi, requests

# PROTOCOL 8: what a server can answer to a request.
CODES = {
    -1: "SystemServerError",
    -2: "RuntimeInconsistencyError",
    -3: "DataInconsistencyError",
    -5: "MarshallingError",
    -6: "UnimplementedError",
    -7: "OperationTimeoutError",
    -8: "BadArgumentsError",
    -13: "NewConfigNoQuorumError",
    -14: "ReconfigInProgressError",
    -101: "NoNodeError",
    -102: "NoAuthError",
    -103: "BadVersionError",
    -108: "NoChildrenForEphemeralsError",
    -110: "NodeExistsError",
    -111: "NotEmptyError",
    -114: "InvalidACLError",
    -118: "SessionMovedError",
    -119: "NotReadOnlyError",
    -120: "EphemeralOnLocalSessionError",
    -121: "NoWatcherError",
    -122: "RequestTimeoutError",
    -123: "ReconfigDisabledError",
    -124: "AuthenticationRequiredError",
    -125: "QuotaExceededError",
    -127: "ThrottledError",
}


def _classes() -> list[type[BaseException]]:
    return [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, BaseException)]


def _transaction_error() -> TransactionError:
    cause = ServerError.from_code(-110, "/b", operation="create", server="zk1:2181")
    return TransactionError(cause, 1, [None, cause, RuntimeInconsistencyError(-2, "/c", operation="delete")])


ERRORS: list[ZooKeeperError] = [
    ZooKeeperError("something"),
    *(ServerError.from_code(code, "/a", operation="getData", server="zk1:2181") for code in [*CODES, -9999]),
    _transaction_error(),
    ConnectionLostError("the connection broke", maybe_applied=True),
    ConnectionLostError("the connection broke", maybe_applied=False),
    SessionExpiredError("gone"),
    AuthFailedError("refused"),
    SessionClosedError("closed"),
    ProtocolError("nonsense"),
]


def test_the_tree_is_the_one_in_the_design() -> None:
    parents = {error.__name__: error.__bases__ for error in _classes()}
    assert parents.pop("ZooKeeperError") == (Exception,)
    for name in ("ServerError", "ConnectionLostError", "SessionError", "ProtocolError"):
        assert parents.pop(name) == (ZooKeeperError,)
    for name in ("SessionExpiredError", "AuthFailedError", "SessionClosedError"):
        assert parents.pop(name) == (SessionError,)
    assert set(parents.values()) == {(ServerError,)}
    assert set(parents) == {*CODES.values(), "TransactionError"}


@pytest.mark.parametrize(("code", "name"), CODES.items())
def test_each_code_has_its_class(code: int, name: str) -> None:
    error = ServerError.from_code(code, "/a")
    assert type(error).__name__ == name
    assert type(error) is getattr(errors, name)
    assert (type(error).code, error.code) == (code, code)


@given(st.integers(-(2**31), 2**31 - 1).filter(lambda code: code not in CODES))
def test_an_unknown_code_keeps_its_number(code: int) -> None:
    error = ServerError.from_code(code, "/a")
    assert type(error) is ServerError
    assert error.code == code
    assert str(code) in str(error)


@pytest.mark.parametrize(("code", "name"), [(-12, "UnknownSession"), (-112, "SessionExpired"), (-115, "AuthFailed")])
def test_a_code_without_a_class_has_its_name_all_the_same(code: int, name: str) -> None:
    error = ServerError.from_code(code, "/a", operation="getData")
    assert type(error) is ServerError
    assert f"[{name} {code}]" in str(error)
    assert ServerError.reason not in str(error)


# PROTOCOL 4.1: what came after ZooKeeper 3.4.
SINCE = {
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


@pytest.mark.parametrize(("operation", "version"), SINCE.items())
def test_an_unknown_operation_names_the_version_that_it_needs(operation: str, version: str) -> None:
    error = ServerError.from_code(-6, operation=operation)
    assert f"it needs ZooKeeper {version} or newer" in str(error)


def test_every_operation_by_a_version_is_a_request_of_that_name() -> None:
    names = {
        value.operation
        for module in (multi, requests)
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, requests.Request) and value is not requests.Request
    }
    assert set(SINCE) == names - {
        "auth", "checkVersion", "closeSession", "create", "delete", "exists", "getACL", "getChildren", "getChildren2",
        "getData", "multi", "ping", "sasl", "setACL", "setData", "setWatches", "sync",
    }  # fmt: skip


def test_an_unknown_operation_says_what_else_it_needs() -> None:
    assert "zookeeper.extendedTypesEnabled=true" in str(ServerError.from_code(-6, "/a", operation="createTTL"))
    assert "an ensemble" in str(ServerError.from_code(-6, operation="reconfig"))
    assert "Client.pipeline" in str(ServerError.from_code(-6, operation="multiRead"))
    assert ServerError.from_code(-6, "/a", operation="create").hint == ""


def test_arguments_that_do_not_fit_are_explained_by_what_was_asked() -> None:
    assert "the root and /zookeeper cannot be deleted" in str(ServerError.from_code(-8, "/", operation="delete"))
    assert "server.4=host:port:port:role;port" in str(ServerError.from_code(-8, operation="reconfig"))
    assert ServerError.from_code(-8, "/a", operation="create").hint == ""


def test_a_second_class_for_a_code_is_refused_and_the_first_one_stays() -> None:
    with pytest.raises(TypeError, match=r"-101.*NoNodeError.*Second"):

        class Second(ServerError):
            code = -101

    assert type(ServerError.from_code(-101)) is NoNodeError


def test_a_subclass_without_a_code_of_its_own_takes_no_code_away() -> None:
    class Special(NoNodeError):
        pass

    assert type(ServerError.from_code(-101)) is NoNodeError
    assert str(Special(-101, "/a")).startswith("request /a: no such node")


@pytest.mark.parametrize("code", [*CODES, -9999])
def test_a_message_names_the_operation_the_path_the_server_and_the_code(code: int) -> None:
    message = str(ServerError.from_code(code, "/a/ü", operation="setData", server="zk1:2181"))
    for part in ("setData", "/a/ü", "zk1:2181", str(code)):
        assert part in message


def test_a_message_without_path_and_server_leaves_no_hole() -> None:
    assert str(ServerError.from_code(-121, operation="removeWatches")) == (
        "removeWatches: the server has no such watch [NoWatcher -121]"
    )


def test_a_message_says_what_to_do_where_that_is_known() -> None:
    assert "try again later" in str(ThrottledError(-127, "/a"))
    error = NodeExistsError(-110, "/a")
    error.hint = "delete it first"
    assert str(error).endswith("(delete it first)")
    assert NodeExistsError.hint == ""


def test_a_transaction_error_tells_which_operation_and_why() -> None:
    error = _transaction_error()
    assert error.index == 1
    assert error.code == -110
    assert error.path == "/b"
    assert error.__cause__ is error.cause is error.results[1]
    for part in ("nothing was carried out", "operation 1", "create /b", "the node exists already", "zk1:2181"):
        assert part in str(error)


def test_a_transaction_error_raised_from_another_still_tells_its_own_cause() -> None:
    with pytest.raises(TransactionError, match=r"operation 1 .*create /b: the node exists already"):
        raise _transaction_error() from KeyError("elsewhere")


def _pickled(protocol: int) -> Callable[[Any], Any]:
    return lambda error: pickle.loads(pickle.dumps(error, protocol))


@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, *(_pickled(protocol) for protocol in range(pickle.HIGHEST_PROTOCOL + 1))]
)
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_survives_copying_and_pickling(error: ZooKeeperError, duplicate: Callable[[Any], Any]) -> None:
    error.add_note("seen in production")
    twin = duplicate(error)
    assert twin is not error
    assert type(twin) is type(error)
    assert twin.args == error.args
    assert str(twin) == str(error)
    assert set(vars(twin)) == set(vars(error))
    for name in ("code", "path", "operation", "server", "index", "maybe_applied", "__notes__"):
        assert getattr(twin, name, None) == getattr(error, name, None)
    del error.__notes__


def test_a_pickled_transaction_error_keeps_each_operations_result() -> None:
    twin: TransactionError = pickle.loads(pickle.dumps(_transaction_error()))
    assert twin.results[0] is None
    assert [(type(result), result.path) for result in twin.results[1:] if result is not None] == [
        (NodeExistsError, "/b"),
        (RuntimeInconsistencyError, "/c"),
    ]
    assert twin.cause is twin.results[1]


def test_a_lost_connection_tells_whether_the_write_may_have_happened() -> None:
    with pytest.raises(TypeError):
        ConnectionLostError("broke")  # type: ignore[call-arg]
    assert ConnectionLostError("broke", maybe_applied=True).maybe_applied
    assert not ConnectionLostError("broke", maybe_applied=False).maybe_applied


def test_which_refusals_pass() -> None:
    """Those that tell of the server's state at the moment, and of no node."""
    errors = [ServerError.from_code(code) for code in range(-130, 0)]
    assert [error.code for error in errors if error.is_transient] == [-127, -122, -119, -7, -1]
