"""How nodes, Stats, ACLs and events are printed: as text for people, and as JSON for programs."""

from __future__ import annotations

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

_LETTERS = {"c": Perms.CREATE, "d": Perms.DELETE, "r": Perms.READ, "w": Perms.WRITE, "a": Perms.ADMIN}


def as_json(value: Any) -> str:
    """Return `value` as one line of JSON, which any program reads alike: in UTF-8, or else in ASCII."""
    is_utf8 = sys.stdout.encoding.lower().replace("-", "") == "utf8"
    return json.dumps(value, ensure_ascii=not is_utf8, separators=(", ", ": "))


def prepare_streams() -> None:
    """Have a closed stream discard its text, and have text that the stream's encoding does not contain escaped."""
    if sys.stdout is None:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def standard_input() -> BinaryIO:
    """Return the standard input as bytes.  Raises: OSError if it is closed."""
    if sys.stdin is None:
        raise OSError("the standard input is closed")
    return sys.stdin.buffer


def json_of_data(data: bytes) -> dict[str, str]:
    """Return the data of a node for JSON: {"data": text}, or {"base64": ...} if it is no text in UTF-8."""
    try:
        return {"data": data.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def data_of_json(fields: dict[str, Any]) -> bytes:
    """Return what `json_of_data` was given.  Raises: ValueError, TypeError."""
    if "base64" in fields:
        return base64.b64decode(fields["base64"], validate=True)
    text = fields["data"]
    if not isinstance(text, str):
        raise TypeError("the data of a node is text")
    return text.encode()


def json_of_stat(stat: Stat) -> dict[str, int]:
    """Return the fields of a Stat by their names."""
    return asdict(stat)


def lines_of_stat(stat: Stat) -> list[str]:
    """Return the lines that `stat` prints."""
    return [f"{name} = {_shown(name, value)}" for name, value in json_of_stat(stat).items()]


def _shown(name: str, value: int) -> str:
    if name.endswith("zxid") or name == "ephemeral_owner":
        return f"{value % 2**64:#x}"
    if name.endswith("time"):
        return moment(value)
    return str(value)


def moment(milliseconds: int) -> str:
    """Return a time of the server, in milliseconds since 1970, in words."""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(sep=" ", timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return str(milliseconds)


def acl_text(acl: ACL) -> str:
    """Return an entry of an ACL as "scheme:id:letters", the form of ZooKeeper's own shell."""
    return f"{acl.scheme}:{acl.id}:{''.join(letter for letter, perm in _LETTERS.items() if acl.perms & perm)}"


def acl_of_text(text: str) -> ACL:
    """Return the entry that "scheme:id:letters" describes; an id may contain colons.  Raises: ValueError."""
    scheme, _, rest = text.partition(":")
    id_, colon, letters = rest.rpartition(":")
    if not scheme or not colon or not set(letters) <= set(_LETTERS):
        raise ValueError(f"{text!r} is no ACL entry: write scheme:id:letters, with letters of cdrwa")
    perms = Perms(0)
    for letter in letters:
        perms |= _LETTERS[letter]
    return ACL(perms, scheme, id_)


def write_data(data: bytes) -> None:
    """Write the bytes of a node to the standard output; on a terminal, end the line."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    if sys.stdout.isatty() and not data.endswith(b"\n"):
        sys.stdout.buffer.write(b"\n")
    sys.stdout.buffer.flush()


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the rows as lines, with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
