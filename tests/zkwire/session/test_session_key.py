"""Which session a client asks for: the one that it has, unless only one server knows that."""

import pytest

from zkwire.session.attempt import SessionKey
from zkwire.wire.records import ConnectRequest, ConnectResponse

PASSWORD, NEXT, NONE = b"p" * 16, b"n" * 16, bytes(16)


def granted(session_id: int, password: bytes | None = PASSWORD) -> ConnectResponse:
    return ConnectResponse(0, 4000, session_id, password)


def hello(key: SessionKey) -> tuple[int, bytes | None]:
    request = key.hello(4.0, 7, accepts_read_only=False)
    return request.session_id, request.password


def test_a_new_key_asks_for_a_new_session_and_one_of_the_caller_for_his() -> None:
    assert SessionKey().hello(1.2345, 7, accepts_read_only=True) == ConnectRequest(0, 7, 1234, 0, NONE, True)
    assert hello(SessionKey()) == (0, NONE)
    key = SessionKey(5, PASSWORD, is_resumable=True)
    assert key.hello(4.0, 7, accepts_read_only=False) == ConnectRequest(0, 7, 4000, 5, PASSWORD, False)
    assert "ppp" not in repr(key)


@pytest.mark.parametrize("password", [PASSWORD, None, b""])
def test_a_granted_session_is_resumed(password: bytes | None) -> None:
    key = SessionKey()
    key.granted(granted(5, password), is_read_only=False)
    assert (key.id, key.is_resumable) == (5, True)
    assert hello(key) == (5, password or NONE)
    key.granted(granted(5, NEXT), is_read_only=False)
    assert hello(key) == (5, NEXT)


def test_a_session_that_a_server_without_a_quorum_has_made_or_could_not_resume_is_not_asked_for_elsewhere() -> None:
    key = SessionKey()
    key.granted(granted(5), is_read_only=True)
    assert (key.id, key.password, key.is_resumable) == (5, PASSWORD, False)
    assert hello(key) == (0, NONE)
    key.granted(granted(5), is_read_only=False)
    key.granted(granted(5), is_read_only=True)
    assert hello(key) == (5, PASSWORD)
    key.granted(granted(6), is_read_only=True)  # another one: that server could not resume it
    assert hello(key) == (0, NONE)
