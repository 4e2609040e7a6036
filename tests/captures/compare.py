"""Compares two plays of one theme byte for byte, except for zxids, times and what identifies a session."""

from collections.abc import Iterator

from tests.captures.meaning import Masker, is_event
from tests.captures.play import SET_WATCHES, SET_WATCHES2, Exchange, Recording
from zkwire.wire.primitives import DecodeError

WATCH_LISTS = (SET_WATCHES, SET_WATCHES2)


def differences(one: Recording, other: Recording) -> Iterator[str]:
    """Yield a paragraph for each exchange that differs."""
    masked = [list(_masked(recording)) for recording in (one, other)]
    for mine, theirs in zip(*masked, strict=True):
        if mine != theirs:
            yield "\n".join(["one:", *mine, "other:", *theirs])


def _masked(recording: Recording) -> Iterator[list[str]]:
    """Yield the lines of each exchange, in the form that is the same for every server."""
    masker = Masker(recording.base)
    greeted: set[str] = set()
    for exchange in recording.exchanges:
        lines = [f"{recording.theme}, {exchange.name}: {exchange.action} {exchange.connection}"]
        if exchange.action == "open":
            greeted.discard(exchange.connection)
        lines.append(f"> {_request(masker, exchange).hex(' ', -4)}")
        by_connection: dict[str, list[bytes]] = {}
        for connection, frame in exchange.received:
            masked = _frame(masker, exchange, connection not in greeted, frame)
            greeted.add(connection)
            by_connection.setdefault(connection, []).append(masked)
        for connection, frames in sorted(by_connection.items()):
            if exchange.name.endswith(ANY_ORDER):
                frames = sorted(frames[:-1]) + frames[-1:] if connection == exchange.connection else sorted(frames)
            lines += [f"< {connection} {frame.hex(' ', -4)}" for frame in frames]
        yield [*lines, *(f"closed {connection}" for connection in exchange.closed)]


# A session's ephemeral nodes are deleted in one transaction, in the order of a hash table of the server.
ANY_ORDER = "(in any order)"


def _request(masker: Masker, exchange: Exchange) -> bytes:
    if exchange.action == "open":
        try:
            return masker.connect_request(exchange.sent[4:])
        except DecodeError:
            return exchange.sent  # the script broke it on purpose
    if exchange.action == "send" and exchange.opcode in WATCH_LISTS and len(exchange.sent) >= 20:
        zxid = int.from_bytes(exchange.sent[12:20], "big")
        return exchange.sent[:12] + masker.zxid(zxid).to_bytes(8, "big", signed=True) + exchange.sent[20:]
    return exchange.sent


def _frame(masker: Masker, exchange: Exchange, first: bool, frame: bytes) -> bytes:
    if first:
        return masker.connect_response(frame)
    if is_event(frame):
        return masker.event(frame)
    return masker.reply(exchange.opcode, frame)
