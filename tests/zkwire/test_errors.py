"""The tree of exceptions, what their messages say, and that they survive being copied and pickled."""

import copy
import pickle
from collections.abc import Callable
from itertools import chain
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import recipes
import zkwire
from zkwire import errors
from zkwire.errors import (
    AuthFailedError,
    ConnectionLostError,
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
from zkwire.session.request_queue import RequestTooLargeError

# The codes that a server can answer to a request.
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
    found = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, BaseException)]
    return [error for error in found if not error.__name__.startswith("_")]


def _transaction_error() -> TransactionError:
    cause = ServerError.from_code(-110, "/b", operation="create", server="zk1:2181")
    return TransactionError(cause, 1, [None, cause, RuntimeInconsistencyError(-2, "/c", operation="delete")])


ERRORS: list[Exception] = [
    ZooKeeperError("something"),
    *(ServerError.from_code(code, "/a", operation="getData", server="zk1:2181") for code in [*CODES, -9999]),
    _transaction_error(),
    ConnectionLostError("the connection broke", maybe_applied=True),
    ConnectionLostError("the connection broke", maybe_applied=False),
    SessionExpiredError("gone"),
    AuthFailedError("refused"),
    SessionClosedError("closed"),
    ProtocolError("nonsense", operation="getData", path="/a"),
    zkwire.NoAnswerError("late", operation="setData", path="/a", maybe_applied=True),
    RequestTooLargeError("create", "/a", 2001, 2000),
    recipes.LockLostError("/a", "the session has expired"),
    recipes.LockTakenError("/a"),
    recipes.PermitsError("/a", 2, b"3"),
]


def _public_bases(error: type[BaseException]) -> tuple[type[BaseException], ...]:
    found = (_public_bases(base) if base.__name__.startswith("_") else (base,) for base in error.__bases__)
    return tuple(chain.from_iterable(found))


def test_each_exception_has_its_place_in_the_tree() -> None:
    parents = {error.__name__: _public_bases(error) for error in _classes()}
    assert parents.pop("ZooKeeperError") == (Exception,)
    assert parents.pop("NoAnswerError") == (ZooKeeperError, TimeoutError)
    for name in ("ServerError", "ConnectionLostError", "SessionError", "ProtocolError"):
        assert parents.pop(name) == (ZooKeeperError,)
    for name in ("SessionExpiredError", "AuthFailedError", "SessionClosedError"):
        assert parents.pop(name) == (SessionError,)
    assert set(parents.values()) == {(ServerError,)}
    assert set(parents) == {*CODES.values(), "TransactionError"}
    assert ServerError.code == 0


@pytest.mark.parametrize(("code", "name"), CODES.items())
def test_each_code_has_its_class(code: int, name: str) -> None:
    error = ServerError.from_code(code, "/a")
    assert type(error) is getattr(errors, name)
    assert (type(error).code, error.code) == (code, code)


@given(st.integers(-(2**31), 2**31 - 1).filter(lambda code: code not in CODES))
def test_an_unknown_code_keeps_its_number(code: int) -> None:
    error = ServerError.from_code(code, "/a")
    assert type(error) is ServerError
    assert error.code == code
    assert str(code) in str(error)


@pytest.mark.parametrize(("code", "name"), [(-12, "UnknownSession"), (-112, "SessionExpired"), (-115, "AuthFailed")])
def test_a_code_without_a_class_still_has_a_name(code: int, name: str) -> None:
    error = ServerError.from_code(code, "/a", operation="getData")
    assert type(error) is ServerError
    assert f"[{name} {code}]" in str(error)
    assert ServerError.reason not in str(error)


def test_a_hint_is_kept_and_without_one_the_class_gives_its_own() -> None:
    assert ServerError.from_code(-8, "/a", hint="another path").hint == "another path"
    assert str(ServerError.from_code(-8, "/a", hint="another path")).endswith("(another path)")
    assert ServerError.from_code(-127).hint == ThrottledError.hint != ""
    assert "raise the limit" in ServerError.from_code(-125).hint
    assert ServerError.from_code(-8).hint == ""


def test_a_second_class_for_a_code_is_refused_and_the_first_stays() -> None:
    with pytest.raises(TypeError, match=r"-101.*NoNodeError.*Second"):

        class Second(ServerError, code=-101):
            pass

    assert type(ServerError.from_code(-101)) is NoNodeError


@pytest.mark.parametrize("code", [*CODES, -9999])
def test_a_message_names_the_operation_the_path_the_server_and_the_code(code: int) -> None:
    message = str(ServerError.from_code(code, "/a/ü", operation="setData", server="zk1:2181"))
    for part in ("setData", "/a/ü", "zk1:2181", str(code)):
        assert part in message


def test_a_message_without_path_and_server_leaves_no_gap() -> None:
    assert str(ServerError.from_code(-121, operation="removeWatches")) == (
        "removeWatches: the server has no such watch [NoWatcher -121]"
    )


def test_a_transaction_error_names_the_refused_operation_and_the_reason() -> None:
    error = _transaction_error()
    assert error.index == 1
    assert error.code == -110
    assert error.path == "/b"
    assert error.__cause__ is error.cause is error.results[1]
    assert TransactionError(ServerError(-8, hint="another path"), 0, []).hint == "another path"
    for part in ("nothing was carried out", "operation 1", "create /b", "the node exists already", "zk1:2181"):
        assert part in str(error)


def _pickled(protocol: int) -> Callable[[Any], Any]:
    return lambda error: pickle.loads(pickle.dumps(error, protocol))


@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, *(_pickled(protocol) for protocol in range(pickle.HIGHEST_PROTOCOL + 1))]
)
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_survives_copying_and_pickling(error: Exception, duplicate: Callable[[Any], Any]) -> None:
    error.add_note("seen in production")
    twin = duplicate(error)
    assert twin is not error
    assert type(twin) is type(error)
    assert twin.args == error.args
    assert str(twin) == str(error)
    assert {name: str(value) for name, value in vars(twin).items()} == {
        name: str(value) for name, value in vars(error).items()
    }
    del error.__notes__


def test_every_public_error_is_among_those_that_are_copied_and_pickled() -> None:
    public = [getattr(package, name) for package in (zkwire, recipes) for name in package.__all__]
    classes = {each for each in public if isinstance(each, type) and issubclass(each, BaseException)}
    assert classes - {type(error) for error in ERRORS} == {SessionError}  # only the base of those that are raised


def test_refusals_that_are_about_the_servers_present_state_are_transient() -> None:
    errors = [ServerError.from_code(code) for code in range(-130, 0)]
    assert [error.code for error in errors if error.is_transient] == [-127, -122, -119, -7, -1]
