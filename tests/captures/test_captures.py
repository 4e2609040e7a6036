"""What a real server answered, byte for byte: its meaning, and that the in-memory server answers the same."""

import asyncio

import pytest

from tests.captures.meaning import REQUESTS, decode_connect_response, decode_event, decode_reply, is_event, meanings
from tests.captures.play import differences
from tests.captures.record import SUPER, real_server
from tests.captures.recording import THEMES, Exchange, Recording, load
from tests.captures.sides import MachineSide, RealSide
from zkwire.testing import Server, ZooKeeperMissingError
from zkwire.testing.memory.machine import Settings

RECORDINGS = {theme: load(theme) for theme in THEMES}
by_theme = pytest.mark.parametrize("theme", THEMES)

# zkwire decodes a null string in a reply as empty.  Only this reply has one: it echoes the path that was sent.
NULL_STRINGS = {"sync of a null path"}
# zkwire encodes True as 01, and decodes any byte but 00 as True.
ODD_REQUESTS = {"boolean 02"}


def requests_and_replies(recording: Recording) -> list[tuple[Exchange, bytes]]:
    """Return the replies of a theme, each with its exchange, without handshakes and events."""
    return [
        (exchange, frame)
        for exchange in recording.exchanges
        for connection, frame in exchange.received
        if exchange.action == "send" and connection == exchange.connection and not is_event(frame)
    ]


@by_theme
def test_the_recorded_bytes_mean_what_the_recording_says(theme: str) -> None:
    for exchange in RECORDINGS[theme].exchanges:
        assert meanings(exchange) == exchange.meanings, exchange.name


@by_theme
def test_every_received_frame_is_decoded_and_encoded_to_the_same_bytes(theme: str) -> None:
    for exchange in RECORDINGS[theme].exchanges:
        for connection, frame in exchange.received:
            if exchange.is_handshake(connection):
                response, flag = decode_connect_response(frame)
                again = response.encode() + (b"" if flag is None else bytes([flag]))
            else:
                header, body = decode_event(frame) if is_event(frame) else decode_reply(exchange.opcode, frame)
                again = header.encode() + (b"" if body is None else body.encode())
            assert (again == frame) is (exchange.name not in NULL_STRINGS), exchange.name


@by_theme
def test_every_successful_request_is_decoded_and_encoded_to_the_same_bytes(theme: str) -> None:
    for exchange, frame in requests_and_replies(RECORDINGS[theme]):
        if decode_reply(exchange.opcode, frame)[0].err == 0 and exchange.name not in ODD_REQUESTS:
            request, at = REQUESTS[exchange.opcode].decode(exchange.sent, 12)
            assert exchange.sent[at:] in (b"", b"behind"), exchange.name
            assert request.encode() == exchange.sent[12:at], exchange.name


@by_theme
def test_the_in_memory_server_gives_the_same_bytes(theme: str) -> None:
    settings = Settings(tick_time=0.5, max_session_timeout=600.0, super_digest=SUPER)
    assert not differences(RECORDINGS[theme], MachineSide(settings))


async def test_the_in_memory_server_gives_the_same_bytes_over_tcp() -> None:
    async with Server(tick_time=0.5, max_session_timeout=600.0, super_digest=SUPER) as server:
        for theme in THEMES:
            assert not await asyncio.to_thread(differences, RECORDINGS[theme], RealSide(server.port))


@pytest.mark.since("3.9", "what was recorded", raises=ZooKeeperMissingError)
def test_another_real_server_gives_the_same_bytes() -> None:
    with real_server() as server:
        for theme in THEMES:
            assert not differences(RECORDINGS[theme], RealSide(server.port))
