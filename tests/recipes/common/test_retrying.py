"""The policy of asking again, on a client that only answers as it is told."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from recipes.common import retrying
from tests.support.recipes import outcome
from zkwire import (
    BadVersionError,
    ConnectionLostError,
    GetData,
    NoNodeError,
    NotReadOnlyError,
    OperationTimeoutError,
    RequestTimeoutError,
    ServerError,
    SessionClosedError,
    SessionExpiredError,
    SessionState,
    Sync,
    SystemServerError,
    ThrottledError,
)

TRANSIENT = (ThrottledError, NotReadOnlyError, OperationTimeoutError, RequestTimeoutError, SystemServerError)


def refusal(error: type[ServerError]) -> ServerError:
    return error(error.code, "/a")


def client(*answers: Any, state: SessionState = SessionState.CONNECTED) -> Any:
    """A client whose pipelines get `answers`, one after the other; it records what was sent."""
    left = list(answers)
    sent: list[list[Any]] = []

    async def pipeline(operations: Any) -> list[Any]:
        sent.append(list(operations))
        return cast(list[Any], left.pop(0))

    return SimpleNamespace(pipeline=pipeline, state=state, sent=sent)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """The pauses that were made."""
    made: list[None] = []

    async def pause() -> None:
        made.append(None)

    monkeypatch.setattr(retrying, "pause", pause)
    return made


def asks(*outcomes: Any) -> Callable[[], Any]:
    left = list(outcomes)

    async def ask() -> Any:
        found = left.pop(0)
        if isinstance(found, BaseException):
            raise found
        return found

    return ask


@pytest.mark.parametrize("error", TRANSIENT)
async def test_a_transient_refusal_is_followed_by_a_pause_and_the_same_request(
    error: type[ServerError], pauses: list[None]
) -> None:
    assert await retrying.until_answered(client(), asks(refusal(error), refusal(error), "done")) == "done"
    assert len(pauses) == 2


@pytest.mark.parametrize(
    ("error", "options", "is_repeated"),
    [
        (refusal(BadVersionError), {"repeats": True}, False),
        (SessionClosedError("closed"), {"repeats": True}, False),
        (ConnectionLostError("cut", maybe_applied=False), {}, True),
        (ConnectionLostError("cut", maybe_applied=True), {}, False),
        (ConnectionLostError("cut", maybe_applied=True), {"repeats": True}, True),
        (SessionExpiredError("expired"), {}, True),
        (SessionExpiredError("expired"), {"renews": False}, False),
        (ValueError("misuse"), {"repeats": True}, False),
    ],
    ids=repr,
)
async def test_which_errors_are_raised(
    error: Exception, options: dict[str, bool], is_repeated: bool, pauses: list[None]
) -> None:
    found = await outcome(retrying.until_answered(client(), asks(error, "done"), **options))
    assert found == ("done" if is_repeated else error)
    assert not pauses


async def test_an_expired_session_is_the_end_for_a_client_that_renews_none() -> None:
    expired = SessionExpiredError("expired")
    zk = client(state=SessionState.EXPIRED)
    assert await outcome(retrying.until_answered(zk, asks(expired, "done"), repeats=True)) is expired


async def test_reads_are_sent_again_as_long_as_one_is_refused_for_the_moment(pauses: list[None]) -> None:
    missing = refusal(NoNodeError)
    zk = client([refusal(ThrottledError), b"a"], [b"b", refusal(ThrottledError)], [b"c", missing])
    assert await retrying.read(zk, GetData("/a"), GetData("/b")) == [b"c", missing]
    assert zk.sent == [[GetData("/a"), GetData("/b")]] * 3
    assert len(pauses) == 2


async def test_an_answer_after_a_refused_sync_is_not_believed(pauses: list[None]) -> None:
    zk = client([refusal(ThrottledError), b"old"], [None, b"new"], [refusal(BadVersionError), b"old"])
    assert await retrying.read_synced(zk, "/a", GetData("/a")) == [b"new"]
    assert zk.sent == [[Sync("/a"), GetData("/a")]] * 2
    found = await outcome(retrying.read_synced(zk, "/a", GetData("/a")))
    assert isinstance(found, BadVersionError)


def test_an_answer_is_a_value_or_nothing_or_an_error_that_says_what_may_have_happened() -> None:
    assert retrying.result(b"a") == b"a"
    assert retrying.result(refusal(NoNodeError)) is None
    with pytest.raises(BadVersionError, match="it may have been carried out"):
        retrying.result(refusal(BadVersionError))
