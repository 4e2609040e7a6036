"""How nodes, Stats, ACLs and events are printed: as text for people, and as JSON for programs."""

import argparse
import base64
import contextlib
import io
import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, BinaryIO, TextIO

from zkwire import ACL, Perms, Stat
from zkwire.session.request_queue import REQUEST_LIMIT
from zkwire.wire.records import printed

# In base64: the 20 bytes of SHA-1; 16, 28, 32, 48 or 64 of the others that a server may be set to.
_HASH = "|".join(f"[0-9A-Za-z+/]{{{length}" for length in ("27}=", "22}==", "38}==", "43}=", "64}", "86}=="))
_LETTERS = {"c": Perms.CREATE, "d": Perms.DELETE, "r": Perms.READ, "w": Perms.WRITE, "a": Perms.ADMIN}


def as_json(value: Any) -> str:
    """Return `value` as one line of JSON, which any program reads alike: in UTF-8, or else in ASCII."""
    return json.dumps(value, ensure_ascii=sys.stdout.encoding.lower().replace("-", "") != "utf8")


def shown(text: str) -> str:
    """Return `text` as one line, with escapes as in JSON for all that a terminal would carry out, or turn around."""
    return "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in text)


def counted(count: int, noun: str) -> str:
    """Return the number of things in words: "1 node", "2 nodes"."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def say(*lines: str, to: TextIO | None = None) -> None:
    """Print lines to the standard output, as they are, or to `to`; on a terminal and on standard error as `shown`.

    They may contain what a server or another client has written.
    """
    stream = to or sys.stdout
    # Complaints that are not read are no error.
    with contextlib.suppress(OSError) if stream is sys.stderr else contextlib.nullcontext():
        for line in lines:
            print(shown(line) if stream is sys.stderr or stream.isatty() else line, file=stream)


@contextlib.contextmanager
def prepared_streams() -> Iterator[None]:
    """Have a closed stream discard its text; text that the encoding does not contain is escaped, lines go at once.

    At the end, a stream discards what it could not write: Python would complain, and change the exit status.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace", line_buffering=True)
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except OSError:
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


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
        ValueError: if it has more bytes than a request may have; the rest is not read.
    """
    data = standard_input().read(REQUEST_LIMIT + 1) if text == "-" else os.fsencode(text)
    if len(data) > REQUEST_LIMIT:
        raise ValueError(f"the data has more than {REQUEST_LIMIT} bytes, which the servers accept (jute.maxbuffer)")
    return data


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
    return bytes(fields["data"], "utf-8")


def lines_of_stat(stat: Stat) -> list[str]:
    """Return the lines that `stat` prints."""
    words = {"ctime": moment, "mtime": moment, **dict.fromkeys(("czxid", "mzxid", "pzxid", "ephemeral_owner"), printed)}
    return [f"{name} = {words.get(name, str)(value)}" for name, value in asdict(stat).items()]


def row_of_stat(stat: Stat | None, name: str) -> tuple[str, ...]:
    """Return the row of a node in a long list; `stat` is None if this client may not ask for it."""
    if stat is None:
        return ("?", "?", "?", "?", "?", name)
    owner = printed(stat.ephemeral_owner) if stat.ephemeral_owner else "-"
    return (*map(str, (stat.version, stat.data_length, stat.num_children)), owner, moment(stat.mtime), name)


def moment(milliseconds: int) -> str:
    """Return a time of the server, in milliseconds since 1970, as text."""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(sep=" ", timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return str(milliseconds)


def acl_text(acl: ACL) -> str:
    """Return an entry of an ACL as "scheme:id:letters", the form of ZooKeeper's own shell."""
    return f"{acl.scheme}:{acl.id}:{''.join(letter for letter, perm in _LETTERS.items() if acl.perms & perm)}"


def acl_of_text(text: str, least: int = 0) -> ACL:
    """Return the entry that "scheme:id:letters" describes, with `least` letters; an id may contain colons.

    Raises:
        argparse.ArgumentTypeError: if it describes none, or one for no client, because there is no hash in it: a server
            has masked it, or it is the password itself.  The error does not show the text.
    """
    scheme, _, rest = text.partition(":")
    id_, colon, letters = rest.rpartition(":")
    if not scheme or not colon or not set(letters) <= set(_LETTERS) or len(letters) < least:
        raise argparse.ArgumentTypeError("an entry of an ACL is scheme:id:letters, with letters of cdrwa")
    if scheme == "digest" and not re.fullmatch(f"[^:]*:({_HASH})", id_):
        raise argparse.ArgumentTypeError("a digest is user:hash, in base64: no client could log in with this entry")
    return ACL(Perms(sum(map(_LETTERS.__getitem__, set(letters)))), scheme, id_)


def is_masked(acl: ACL) -> bool:
    """Return whether the server has hidden the hash of a password from a client without the permission ADMIN."""
    return acl.scheme == "digest" and acl.id.partition(":")[2] == "x"


def write_data(data: bytes) -> None:
    """Write the bytes of a node to the standard output; a terminal gets them as text."""
    if sys.stdout.isatty():
        say(*(line.expandtabs() for line in data.decode(errors="backslashreplace").removesuffix("\n").split("\n")))
    else:
        sys.stdout.buffer.write(data)


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the rows as lines, with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
