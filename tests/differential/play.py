"""Plays one script on both servers and compares all that they send, in the order of each connection."""

import itertools
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.captures.meaning import Masker
from tests.captures.sides import Answers, MachineSide, Side, SideLink, framed
from tests.differential.operations import ALONE, BORN, SLOTS, Step
from zkwire.testing.memory.machine import Settings
from zkwire.wire.multi import MultiRequest
from zkwire.wire.primitives import INT, DecodeError
from zkwire.wire.records import EVENT_XID, OPEN_ACL, ConnectRequest, RequestHeader
from zkwire.wire.requests import CloseSessionRequest, CreateRequest, GetACLReply, Request

HEADER = struct.Struct(">iqi")
CLOSE_SESSION = CloseSessionRequest.opcode
MAX_TIMEOUT = 3600.0  # seconds: no session may expire in a run, also when it is stopped for a while
MACHINE = Settings(tick_time=2.0, max_session_timeout=MAX_TIMEOUT, container_interval=1e6)


class Different(AssertionError):
    """The two servers did not send the same."""


class SortingMasker(Masker):
    """Sorts ACLs too, because the real server expands `auth` into several identities in the order of a hash table.

    A frame that is only a header, which most are, is renamed without decoding it into a record.
    """

    def reply(self, opcode: int, frame: bytes) -> bytes:
        return self._header(frame) if len(frame) == HEADER.size else super().reply(opcode, frame)

    def event(self, frame: bytes) -> bytes:
        return self._header(frame) + frame[HEADER.size :]

    def _header(self, frame: bytes) -> bytes:
        xid, zxid, err = HEADER.unpack_from(frame)
        return HEADER.pack(xid, self.zxid(zxid), err)

    def record(self, value: Any) -> Any:
        masked = super().record(value)
        if isinstance(masked, GetACLReply):
            masked.acl = sorted(masked.acl, key=lambda entry: bytes(entry.encode()))
        return masked


@dataclass(slots=True)
class Slot:
    """A connection with its session, on one server. `link` None: it is lost; session 0: there is none yet."""

    link: SideLink | None = None
    session_id: int = 0
    password: bytes = bytes(16)
    last_zxid: int = 0


@dataclass(slots=True)
class Half:
    """The part of a play that runs on one of the servers."""

    side: Side
    masker: Masker = field(default_factory=SortingMasker)
    slots: list[Slot] = field(default_factory=lambda: [Slot() for _ in range(SLOTS)])
    base: int = 0
    closes: set[int] = field(default_factory=set)  # the masked zxids of closeSession
    xids: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    opcodes: dict[int, int] = field(default_factory=dict)

    def connect(self, number: int, session_id: int, password: bytes, closing: bool) -> Answers:
        """Open a connection, for an old session or (id 0) a new one, and take its first frames."""
        slot = self.slots[number]
        link = self.side.open()
        request = ConnectRequest(0, slot.last_zxid, round(MAX_TIMEOUT * 1000), session_id, password, False)
        frames, closed = link.greet(framed(request.encode()), closing)
        masked = [self.masker.connect_response(frame) for frame in frames]
        if closed:
            link.drop()
        else:
            slot.link = link
            if not session_id:
                slot.session_id = int.from_bytes(frames[0][8:16], "big", signed=True)
                slot.password = frames[0][20:36]
        return masked, closed

    def rest(self, link: SideLink | None, closing: bool) -> Answers:
        """Return what an old connection still gets when its session is resumed on another one."""
        if link is None:
            return [], False
        frames, closed = link.exchange(b"", closing)
        link.drop()
        return self._masked(frames), closed

    def ask(self, number: int, requests: Sequence[bytes], closing: bool) -> Answers:
        """Send requests, each without its xid, in one write, and return what the server sends."""
        slot = self.slots[number]
        assert slot.link is not None
        payloads = []
        for request in requests:
            xid = next(self.xids)
            self.opcodes[xid] = int.from_bytes(request[:4], "big", signed=True)
            payloads.append(framed(INT.pack(xid) + request))
        frames, closed = slot.link.exchange(b"".join(payloads), closing)
        masked = self._masked(frames)
        for frame in frames:
            xid = int.from_bytes(frame[:4], "big", signed=True)
            if xid > 0:
                slot.last_zxid = max(slot.last_zxid, int.from_bytes(frame[4:12], "big", signed=True))
            if self.opcodes.get(xid) == CLOSE_SESSION:
                slot.session_id = 0
        if closed:
            self.drop(number)
        return masked, closed

    def begin(self, root: str) -> None:
        """Begin the first session; create the root, the start of counting zxids, and the first nodes."""
        self.connect(0, 0, bytes(16), False)
        link = self.slots[0].link
        assert link is not None
        nodes = [CreateRequest(path, b"", OPEN_ACL, 0) for path in (root, *(root + path for path in BORN))]
        frames, _ = link.exchange(_request(nodes[0]), False)
        self.base = int.from_bytes(frames[-1][4:12], "big") - 2
        link.exchange(_request(MultiRequest(nodes[1:])), False)
        self.slots[0].last_zxid = self.base + 3
        self.masker.base = self.base

    def drop(self, number: int) -> None:
        """Drop the connection."""
        link = self.slots[number].link
        self.slots[number].link = None
        if link is not None:
            link.drop()

    def _masked(self, frames: list[bytes]) -> list[bytes]:
        masked = []
        for frame in frames:
            xid = int.from_bytes(frame[:4], "big", signed=True)
            if xid == EVENT_XID:
                masked.append(self.masker.event(frame))
                continue
            opcode = self.opcodes[xid]
            masked.append(self.masker.reply(opcode, frame))
            if opcode == CLOSE_SESSION:
                self.closes.add(int.from_bytes(frame[4:12], "big", signed=True) - self.base)
        return self._sorted(masked)

    def _sorted(self, frames: list[bytes]) -> list[bytes]:
        """Sort the events of one closeSession: the real server deletes ephemerals in the order of a hash table."""
        ordered: list[bytes] = []
        for zxid, group in itertools.groupby(frames, key=_event_zxid):
            run = list(group)
            ordered += sorted(run) if zxid in self.closes else run
        return ordered


def _event_zxid(frame: bytes) -> int | None:
    xid, zxid = (int.from_bytes(part, "big", signed=True) for part in (frame[:4], frame[4:12]))
    return zxid if xid == EVENT_XID else None


def _request(request: Request[Any]) -> bytes:
    return framed(RequestHeader(1, request.opcode).encode() + request.encode())


class Play:
    """One script, played on a new machine and on a real server."""

    def __init__(self, real: Side, root: str) -> None:
        self._root = root
        self._machine = Half(MachineSide(MACHINE))
        self._real = Half(real)
        self._log: list[str] = []
        self.operations = 0

    def run(self, script: Sequence[Step]) -> None:
        """Play all steps, and then close all sessions; raise Different if the answers differ."""
        halves = (self._machine, self._real)
        try:
            for half in halves:
                half.begin(self._root)
            for number, steps in _blocks(script):
                self._block(number, steps)
            for number in range(SLOTS):
                if self._machine.slots[number].session_id:
                    self._block(number, [Step(number, "close", "", 0, 0, 0)])
        except (DecodeError, ValueError, KeyError) as error:
            raise Different("\n".join(self._log) + "\nthe frames above cannot be decoded") from error
        finally:
            for half in halves:
                for number in range(SLOTS):
                    half.drop(number)

    def _block(self, number: int, steps: Sequence[Step]) -> None:
        self.operations += sum(len(step.parts) or 1 for step in steps)
        first = steps[0].kind
        self._log.append(f"{number}: {', '.join(map(repr, steps))}")
        slot = self._machine.slots[number]
        if first == "drop":
            self._machine.drop(number)
            self._real.drop(number)
        elif first == "stranger":
            self._connect(number, "stranger")
        elif first in ("resume", "wrong_password"):
            if slot.session_id:
                self._connect(number, first)
        else:
            if slot.link is None:
                self._connect(number, "resume")
            self._ask(number, steps)

    def _connect(self, number: int, how: str) -> None:
        """Open a connection; unless it is for another session, this closes the old connection of the slot."""
        closing = leaving = False
        results: list[tuple[Answers, Answers]] = []
        for half in (self._machine, self._real):
            slot = half.slots[number]
            if how == "stranger":
                results.append((half.connect(number, 77, bytes(16), closing), ([], False)))
            else:
                wrong = how == "wrong_password"
                password = bytes(16) if wrong else slot.password
                old, slot.link = slot.link, None
                opened = half.connect(number, slot.session_id, password, closing)
                results.append((opened, half.rest(old, leaving)))
            (_, closing), (_, leaving) = results[0]
        self._compare(*results)

    def _ask(self, number: int, steps: Sequence[Step]) -> None:
        closing = False
        results: list[Answers] = []
        for half in (self._machine, self._real):
            last = half.slots[number].last_zxid
            requests = [step.encode(self._root, last, half.base) for step in steps]
            results.append(half.ask(number, requests, closing))
            closing = results[0][1]
        self._compare(*results)

    def _compare(self, machine: object, real: object) -> None:
        if machine != real:
            log = "\n".join(self._log)
            raise Different(f"{log}\nthe machine:\n{_readable(machine)}\nthe real one:\n{_readable(real)}")


def _readable(result: object) -> str:
    if isinstance(result, bytes):
        return f"  {result.hex(' ', -4)}\n"
    if isinstance(result, tuple | list):
        return "".join(map(_readable, result))
    return f"  closed: {result}\n"


def _blocks(script: Sequence[Step]) -> Iterable[tuple[int, list[Step]]]:
    """Group neighbouring requests of one connection into one write; a request that may close it is sent alone."""
    number = 0
    block: list[Step] = []
    for step in script:
        if step.kind == "nothing":
            continue
        new = number if step.slot is None else step.slot
        alone = step.kind in ALONE
        if block and (alone or new != number):
            yield number, block
            block = []
        number = new
        if alone:
            yield number, [step]
        else:
            block.append(step)
    if block:
        yield number, block
