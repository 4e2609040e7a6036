"""Plays a recording on a server, and compares what came with what was recorded."""

from collections.abc import Iterator

from tests.captures.meaning import Masker, is_event
from tests.captures.recording import Exchange, Recording
from tests.captures.sides import Side, SideLink
from zkwire.wire.primitives import DecodeError
from zkwire.wire.requests import SetWatches2Request, SetWatchesRequest

WATCH_LISTS = (SetWatchesRequest.opcode, SetWatches2Request.opcode)
# A session's ephemeral nodes are deleted in one transaction, in the order of a hash table of the server.
ANY_ORDER = "(in any order)"


class Player:
    """Plays one recording: sends the same bytes, with the sessions and the zxids of this server in them."""

    def __init__(self, side: Side, recording: Recording) -> None:
        self._side = side
        self._recording = recording
        self._links: dict[str, SideLink] = {}
        self._sessions: dict[bytes, tuple[bytes, bytes]] = {}  # the id and the password here, by the id recorded
        self._base: int | None = None

    def play(self) -> Recording:
        """Return what was sent and received on this server."""
        played = [self._step(exchange) for exchange in self._recording.exchanges]
        for link in self._links.values():
            link.drop()
        return Recording(self._recording.theme, self._base or 0, played)

    def _step(self, recorded: Exchange) -> Exchange:
        name = recorded.connection
        done = Exchange(recorded.name, recorded.purpose, recorded.action, name)
        if recorded.action == "drop":
            self._links.pop(name).drop()
        else:
            done.sent = self._translated(recorded)
            if recorded.action == "open":
                self._links[name] = self._side.open()
            link = self._links[name]
            send = link.greet if recorded.action == "open" else link.exchange
            self._keep(done, name, send(done.sent, name in recorded.closed))
        for other in sorted(self._links.keys() - {name}):
            self._keep(done, other, self._links[other].exchange(b"", other in recorded.closed))
        done.closed.sort()
        self._learn(recorded, done)
        return done

    def _keep(self, done: Exchange, name: str, answers: tuple[list[bytes], bool]) -> None:
        frames, closed = answers
        done.received += [(name, frame) for frame in frames]
        if closed:
            done.closed.append(name)
            self._links.pop(name).drop()

    def _learn(self, recorded: Exchange, done: Exchange) -> None:
        """Learn from the first answers the session here for a recorded one, and where zxids begin."""
        if not (recorded.received and done.received):
            return
        theirs, ours = recorded.received[0][1], done.received[0][1]
        if recorded.action == "open":
            self._sessions[theirs[8:16]] = ours[8:16], ours[20:36]
        elif self._base is None:
            self._base = int.from_bytes(ours[4:12], "big") - int.from_bytes(theirs[4:12], "big") + self._recording.base

    def _translated(self, recorded: Exchange) -> bytes:
        sent = recorded.sent
        if recorded.action == "open" and len(sent) >= 48:  # length, version, zxid, timeout, id, password
            own_id, own_password = self._sessions.get(sent[20:28], (sent[20:28], sent[32:48]))
            password = sent[32:48] if sent[32:48] == _WRONG_PASSWORD else own_password
            sent = sent[:8] + self._zxid(sent[8:16]) + sent[16:20] + own_id + sent[28:32] + password + sent[48:]
        elif recorded.action == "send" and recorded.opcode in WATCH_LISTS and len(sent) >= 20:
            sent = sent[:12] + self._zxid(sent[12:20]) + sent[20:]
        return sent

    def _zxid(self, recorded: bytes) -> bytes:
        zxid = int.from_bytes(recorded, "big", signed=True)
        return (zxid - self._recording.base + (self._base or 0) if zxid else 0).to_bytes(8, "big", signed=True)


_WRONG_PASSWORD = bytes(range(16))


def differences(recording: Recording, side: Side) -> list[str]:
    """Play a recording; return a paragraph for each exchange that differs in more than zxids, times and sessions."""
    played = Player(side, recording).play()
    pairs = zip(masked(recording), masked(played), strict=True)
    return ["\n".join(["recorded:", *one, "now:", *other]) for one, other in pairs if one != other]


def masked(recording: Recording) -> Iterator[list[str]]:
    """Yield the lines of each exchange, in the form that is the same for every server."""
    masker = Masker(recording.base)
    for exchange in recording.exchanges:
        lines = [f"{recording.theme}, {exchange.name}: {exchange.action} {exchange.connection}"]
        lines.append(f"> {_request(masker, exchange).hex(' ', -4)}")
        by_connection: dict[str, list[bytes]] = {}
        for connection, frame in exchange.received:
            by_connection.setdefault(connection, []).append(_frame(masker, exchange, connection, frame))
        for connection, frames in sorted(by_connection.items()):
            if exchange.name.endswith(ANY_ORDER):
                frames = sorted(frames[:-1]) + frames[-1:] if connection == exchange.connection else sorted(frames)
            lines += [f"< {connection} {frame.hex(' ', -4)}" for frame in frames]
        yield [*lines, *(f"closed {connection}" for connection in exchange.closed)]


def _request(masker: Masker, exchange: Exchange) -> bytes:
    sent = exchange.sent
    if exchange.action == "open":
        try:
            return masker.connect_request(sent[4:])
        except DecodeError:
            return sent  # it was broken on purpose
    if exchange.action == "send" and exchange.opcode in WATCH_LISTS and len(sent) >= 20:
        zxid = int.from_bytes(sent[12:20], "big")
        return sent[:12] + masker.zxid(zxid).to_bytes(8, "big", signed=True) + sent[20:]
    return sent


def _frame(masker: Masker, exchange: Exchange, connection: str, frame: bytes) -> bytes:
    if exchange.is_handshake(connection):
        return masker.connect_response(frame)
    return masker.event(frame) if is_event(frame) else masker.reply(exchange.opcode, frame)
