"""The handshake: a connection begins a session, resumes one, is refused, or gets no answer."""

from __future__ import annotations

from zkwire.testing.memory.sessions import Session
from zkwire.testing.memory.state import Connection, State
from zkwire.wire.frames import LENGTH
from zkwire.wire.primitives import DecodeError
from zkwire.wire.records import ConnectRequest, ConnectResponse

_NO_PASSWORD = bytes(16)


def connect(state: State, connection: Connection, payload: bytes) -> None:
    """Answer a ConnectRequest; the decisions come in the order in which the real server makes them."""
    try:
        # Clients before 3.4 leave out the last byte, the flag read_only, and get a reply without it.
        request, end = ConnectRequest.decode(payload + b"\0", 0)
    except DecodeError:
        state.close(connection)
        return
    flag = b"\0" if end <= len(payload) else b""
    if request.last_zxid_seen > state.last_zxid:
        state.close(connection)
        return
    shortest, longest = state.settings.timeout_range_ms()
    timeout = min(max(request.timeout, shortest), longest)
    if request.session_id == 0:
        session = state.sessions.create(timeout, state.now)
        state.next_zxid()
    else:
        known = state.sessions.by_id.get(request.session_id)
        if known is not None and known.connection is not None:
            state.close(
                known.connection
            )  # before the password is checked: as on the real server, a wrong one drops the owner's connection, too
        if known is None or request.password != known.password:
            _answer(state, connection, ConnectResponse(0, 0, 0, _NO_PASSWORD), flag)
            state.close(connection)
            return
        session = known
        state.sessions.renew(session, timeout, state.now)
    _attach(connection, session)
    connection.last_operation = "SESS"
    connection.last_zxid = state.last_zxid
    connection.last_response = state.now
    _answer(state, connection, ConnectResponse(0, timeout, session.id, session.password), flag)


def _attach(connection: Connection, session: Session[Connection]) -> None:
    connection.session = session
    session.connection = connection


def _answer(state: State, connection: Connection, response: ConnectResponse, flag: bytes) -> None:
    body = response.encode() + flag
    state.send(connection, LENGTH.pack(len(body)) + body)
