"""The policy of asking again, on a client that only answers as it is told."""

import asyncio
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


@pytest.mark.parametrize("state", [SessionState.EXPIRED, SessionState.CLOSED, SessionState.AUTH_FAILED])
async def test_an_expired_session_is_the_end_for_a_client_that_begins_no_other(state: SessionState) -> None:
    expired = SessionExpiredError("expired")
    zk = client(state=state)
    assert await outcome(retrying.until_answered(zk, asks(expired, "done"), repeats=True)) is expired


@pytest.mark.parametrize("error", [ConnectionLostError("cut", maybe_applied=False), SessionExpiredError("expired")])
async def test_a_request_that_fails_without_waiting_does_not_block_the_event_loop(error: Exception) -> None:
    async def ask() -> None:
        raise error

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await retrying.until_answered(client(), ask)


async def test_the_refused_reads_alone_are_asked_again_as_long_as_one_is_refused(pauses: list[None]) -> None:
    a, b, c = GetData("/a"), GetData("/b"), GetData("/c")
    missing, throttled = refusal(NoNodeError), refusal(ThrottledError)
    zk = client([throttled, b"b", throttled], [throttled, missing], [b"a"])
    assert await retrying.read(zk, a, b, c) == [b"a", b"b", missing]
    assert zk.sent == [[a, b, c], [a, c], [a]]
    assert len(pauses) == 2


async def test_reads_in_order_are_asked_again_from_the_first_refused_one_on(pauses: list[None]) -> None:
    a, b, c = GetData("/a"), GetData("/b"), GetData("/c")
    throttled = refusal(ThrottledError)
    zk = client([b"a", throttled, throttled], [b"b", throttled], [b"new"])
    assert await retrying.read(zk, a, b, c, in_order=True) == [b"a", b"b", b"new"]
    assert zk.sent == [[a, b, c], [b, c], [c]]
    assert len(pauses) == 2


async def test_an_answer_after_a_refused_sync_is_not_believed(pauses: list[None]) -> None:
    zk = client([refusal(ThrottledError), b"old"], [None, b"new"], [refusal(BadVersionError), b"old"])
    assert await retrying.read_synced(zk, "/a", GetData("/a")) == [b"new"]
    assert zk.sent == [[Sync("/a"), GetData("/a")]] * 2
    assert isinstance(await outcome(retrying.read_synced(zk, "/a", GetData("/a"))), BadVersionError)


def test_an_answer_is_a_value_or_nothing_or_an_error_that_says_what_may_have_happened() -> None:
    assert retrying.result(b"a") == b"a"
    assert retrying.result(refusal(NoNodeError)) is None
    with pytest.raises(BadVersionError, match="it may have been carried out"):
        retrying.result_after_loss(refusal(BadVersionError))
