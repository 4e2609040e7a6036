"""How nodes, Stats, ACLs and events are printed: as text for people, and as JSON for programs."""

import base64
import io
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, BinaryIO

from zkwire import ACL, Perms, Stat
from zkwire.wire.records import printed

_LETTERS = {"c": Perms.CREATE, "d": Perms.DELETE, "r": Perms.READ, "w": Perms.WRITE, "a": Perms.ADMIN}


def as_json(value: Any) -> str:
    """Return `value` as one line of JSON, which any program reads alike: in UTF-8, or else in ASCII."""
    is_utf8 = sys.stdout.encoding.lower().replace("-", "") == "utf8"
    return json.dumps(value, ensure_ascii=not is_utf8, separators=(", ", ": "))


def prepare_streams() -> None:
    """Have a closed stream discard its text, and have text that the stream's encoding does not contain escaped."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def standard_input() -> BinaryIO:
    """Return the standard input as bytes.

    Raises:
        OSError: if it is closed.
    """
    if sys.stdin is None:
        raise OSError("the standard input is closed")
    return sys.stdin.buffer


def data_of_argument(text: str) -> bytes:
    """Return the data that the command line names: its bytes, or those of the standard input for "-".

    Raises:
        OSError: if the standard input is closed.
    """
    return standard_input().read() if text == "-" else os.fsencode(text)


def json_of_data(data: bytes) -> dict[str, str]:
    """Return the data of a node for JSON: {"data": text}, or {"base64": ...} if it is no text in UTF-8."""
    try:
        return {"data": data.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def data_of_json(fields: dict[str, Any]) -> bytes:
    """Return what `json_of_data` was given.

    Raises:
        ValueError, TypeError, AttributeError: if `fields` do not come from there.
    """
    if "base64" in fields:
        return base64.b64decode(fields["base64"], validate=True)
    data: bytes = fields["data"].encode()
    return data


def lines_of_stat(stat: Stat) -> list[str]:
    """Return the lines that `stat` prints."""
    lines = []
    for name, value in asdict(stat).items():
        if name.endswith("zxid") or name == "ephemeral_owner":
            shown = printed(value)
        else:
            shown = moment(value) if name.endswith("time") else str(value)
        lines.append(f"{name} = {shown}")
    return lines


def row_of_stat(stat: Stat | None, name: str) -> tuple[str, ...]:
    """Return the row of a node in a long list; `stat` is None if this client may not ask for it."""
    if stat is None:
        return ("?", "?", "?", "?", "?", name)
    owner = printed(stat.ephemeral_owner) if stat.ephemeral_owner else "-"
    numbers = map(str, (stat.version, stat.data_length, stat.num_children))
    return (*numbers, owner, moment(stat.mtime), name)


def moment(milliseconds: int) -> str:
    """Return a time of the server, in milliseconds since 1970, as text."""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(sep=" ", timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return str(milliseconds)


def acl_text(acl: ACL) -> str:
    """Return an entry of an ACL as "scheme:id:letters", the form of ZooKeeper's own shell."""
    return f"{acl.scheme}:{acl.id}:{''.join(letter for letter, perm in _LETTERS.items() if acl.perms & perm)}"


def acl_of_text(text: str) -> ACL:
    """Return the entry that "scheme:id:letters" describes; an id may contain colons.

    Raises:
        ValueError: if it describes none.
    """
    scheme, _, rest = text.partition(":")
    id_, colon, letters = rest.rpartition(":")
    if not scheme or not colon or not set(letters) <= set(_LETTERS):
        raise ValueError(f"{text!r} is not an ACL entry: write scheme:id:letters, with letters of cdrwa")
    perms = Perms(0)
    for letter in letters:
        perms |= _LETTERS[letter]
    return ACL(perms, scheme, id_)


def write_data(data: bytes) -> None:
    """Write the bytes of a node to the standard output; on a terminal, end the line."""
    sys.stdout.flush()
    is_line = data.endswith(b"\n") or not sys.stdout.isatty()
    sys.stdout.buffer.write(data if is_line else data + b"\n")
    sys.stdout.buffer.flush()


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the rows as lines, with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
