"""Recordings as text files: one per theme, bytes in hexadecimal, each exchange with its name and meaning."""

import textwrap
from collections.abc import Iterator
from pathlib import Path

from tests.captures.play import Exchange, Recording

FOLDER = Path(__file__).parent / "recorded"
WIDTH = 100
BYTES_A_LINE = 44
ANNOTATION = "# "


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
            *textwrap.wrap(exchange.means, WIDTH, initial_indent=ANNOTATION, subsequent_indent=ANNOTATION),
            f"{exchange.action} {exchange.connection}",
        ]
        lines += _hex(">", exchange.connection, exchange.sent) if exchange.sent else []
        for connection, frame in exchange.received:
            lines += _hex("<", connection, frame)
        lines += [f"closed {connection}" for connection in exchange.closed]
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{recording.theme}.txt").write_text("\n".join(lines) + "\n", encoding="ascii")


def load(theme: str) -> Recording:
    """Read the recording of a theme. Raises: FileNotFoundError when it was never recorded."""
    recording = Recording(theme, 0, [])
    exchange = Exchange("", "", "", "")
    sent: list[str] = []
    received: list[tuple[str, list[str]]] = []
    for line in (*(FOLDER / f"{theme}.txt").read_text(encoding="ascii").splitlines(), "== "):
        first, _, rest = line.partition(" ")
        match first:
            case "zxid":
                recording.base = int(rest.split()[-1])
            case "==":
                if exchange.name:
                    exchange.sent = bytes.fromhex("".join(sent))
                    exchange.received = [(name, bytes.fromhex("".join(parts))) for name, parts in received]
                    recording.exchanges.append(exchange)
                exchange = Exchange(rest, "", "", "")
                sent, received = [], []
                part = sent
            case "#" if exchange.name:
                exchange.means = f"{exchange.means} {rest}".strip()
            case "open" | "send" | "drop":
                exchange.action, exchange.connection = first, rest
            case ">":
                sent.append(rest.partition(" ")[2])
                part = sent
            case "<":
                name, _, digits = rest.partition(" ")
                part = [digits]
                received.append((name, part))
            case "closed":
                exchange.closed.append(rest)
            case "" if rest:
                part.append(line)
    return recording


def _hex(direction: str, connection: str, data: bytes) -> Iterator[str]:
    """Yield lines of hexadecimal digits in groups of four bytes; most fields are as long as a number of groups."""
    start = f"{direction} {connection} "
    for at in range(0, max(len(data), 1), BYTES_A_LINE):
        yield start + data[at : at + BYTES_A_LINE].hex(" ", -4)
        start = " " * len(start)
