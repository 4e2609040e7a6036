"""Recordings as text files: one per theme, each exchange with its name, its purpose, its bytes and their meaning.

An exchange begins with `== name`, followed by its purpose as a comment. `open a` is a new connection called a, `send
a` a request on it, `drop a` its end by the client. `>` marks the bytes sent to the server, with their length. `<`
marks the frames that came back, each with its connection and without its length, in their order on each connection.
`=` is what the bytes before it mean. `closed a` says that the server closed a. `zxid before` is the last transaction
before the theme. An exchange that was never recorded has `? GetDataRequest("/x", False)` in place of bytes: see
record.py.
"""

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

FOLDER = Path(__file__).parent / "recorded"
WIDTH = 100
BYTES_A_LINE = 44
ANNOTATION = "# "

# The themes in the order of recording; "fresh" must be the first on a new server.
THEMES = (
    *("fresh", "handshake", "closing", "framing", "creates", "refused_creates", "writes", "reads", "acls"),
    *("permissions", "identities", "administration", "one_shot", "lasting", "removal", "rearming", "unreadable"),
    *("multi", "refused_multi", "multi_read"),
)


@dataclass(slots=True)
class Exchange:
    """What was done on one connection, and everything that every connection then received."""

    name: str
    purpose: str
    action: str  # "open", "send" or "drop"
    connection: str
    sent: bytes = b""  # as it went over the wire, lengths included
    received: list[tuple[str, bytes]] = field(default_factory=list)  # connection, frame without its length
    closed: list[str] = field(default_factory=list)  # the connections that the server closed, sorted
    meanings: list[str] = field(default_factory=list)  # of what was sent, and of each frame received
    request: str = ""  # to be sent, where nothing is recorded yet

    @property
    def opcode(self) -> int:
        """The opcode of the request that was sent."""
        return int.from_bytes(self.sent[8:12], "big", signed=True)

    def is_handshake(self, connection: str) -> bool:
        """Return whether a frame received on `connection` answers a handshake."""
        return self.action == "open" and connection == self.connection


@dataclass(slots=True)
class Recording:
    """All exchanges of one theme; `base` is the server's last zxid before it."""

    theme: str
    base: int
    exchanges: list[Exchange]


def save(recording: Recording, version: str) -> None:
    """Write a recording to its file."""
    lines = [
        f"# ZooKeeper {version}, standalone; made by `python -m tests.captures.record`, which says how to read it.",
        f"zxid before: {recording.base}",
    ]
    for exchange in recording.exchanges:
        lines += [
            "",
            f"== {exchange.name}",
            *textwrap.wrap(exchange.purpose, WIDTH, initial_indent=ANNOTATION, subsequent_indent=ANNOTATION),
            f"{exchange.action} {exchange.connection}",
        ]
        meanings = iter(exchange.meanings)
        if exchange.sent:
            lines += [*_hex(">", exchange.connection, exchange.sent), f"= {next(meanings)}"]
        for connection, frame in exchange.received:
            lines += [*_hex("<", connection, frame), f"= {next(meanings)}"]
        lines += [f"closed {connection}" for connection in exchange.closed]
    (FOLDER / f"{recording.theme}.txt").write_text("\n".join(lines) + "\n", encoding="ascii")


def load(theme: str) -> Recording:
    """Read the recording of a theme."""
    recording = Recording(theme, 0, [])
    for block in (FOLDER / f"{theme}.txt").read_text(encoding="ascii").split("\n== "):
        first, *lines = block.splitlines()
        if first.startswith(ANNOTATION):
            recording.base = int(lines[0].split()[-1])
            continue
        exchange = Exchange(first, "", "", "")
        recording.exchanges.append(exchange)
        parts: list[list[str]] = []  # of digits: what was sent, then the frames
        names: list[str] = []
        for line in lines:
            mark, _, rest = line.partition(" ")
            match mark:
                case "#":
                    exchange.purpose = f"{exchange.purpose} {rest}".strip()
                case "open" | "send" | "drop":
                    exchange.action, exchange.connection = mark, rest
                case ">" | "<":
                    name, _, digits = rest.partition(" ")
                    names.append(name)
                    parts.append([digits])
                case "=":
                    exchange.meanings.append(rest)
                case "?":
                    exchange.request = rest
                case "closed":
                    exchange.closed.append(rest)
                case "" if rest:
                    parts[-1].append(line)
        frames = [bytes.fromhex("".join(digits)) for digits in parts]
        if frames and exchange.action != "drop":
            exchange.sent, names = frames.pop(0), names[1:]
        exchange.received = list(zip(names, frames, strict=True))
    return recording


def _hex(direction: str, connection: str, data: bytes) -> Iterator[str]:
    """Yield lines of hexadecimal digits in groups of four bytes; most fields are as long as a number of groups."""
    start = f"{direction} {connection} "
    for at in range(0, max(len(data), 1), BYTES_A_LINE):
        yield start + data[at : at + BYTES_A_LINE].hex(" ", -4)
        start = " " * len(start)
