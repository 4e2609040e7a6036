"""Builds requests field by field, without zkwire, because the captures test zkwire's own codec.

Each function returns what follows the xid: the opcode and the body.
"""

import struct
from collections.abc import Iterable

OPEN = ((31, "world", "anyone"),)

Entry = tuple[int, str | None, str | None]


def i32(value: int) -> bytes:
    return struct.pack(">i", value)


def i64(value: int) -> bytes:
    return struct.pack(">q", value)


def boolean(value: bool) -> bytes:
    return b"\x01" if value else b"\x00"


def buffer(value: bytes | None) -> bytes:
    return i32(-1) if value is None else i32(len(value)) + value


def ustring(value: str | None) -> bytes:
    return buffer(None if value is None else value.encode())


def ustrings(values: Iterable[str]) -> bytes:
    listed = list(values)
    return i32(len(listed)) + b"".join(map(ustring, listed))


def acls(entries: Iterable[Entry] | None) -> bytes:
    if entries is None:
        return i32(-1)
    listed = list(entries)
    return i32(len(listed)) + b"".join(i32(perms) + ustring(scheme) + ustring(id) for perms, scheme, id in listed)


def frame(payload: bytes) -> bytes:
    return i32(len(payload)) + payload


def connect(
    timeout: int = 300_000,
    session_id: int = 0,
    password: bytes | None = bytes(16),
    last_zxid: int = 0,
    read_only: bool | None = False,
    version: int = 0,
) -> bytes:
    """Return the payload of the first frame; with `read_only` None it lacks that byte, as from clients before 3.4."""
    flag = b"" if read_only is None else boolean(read_only)
    return i32(version) + i64(last_zxid) + i32(timeout) + i64(session_id) + buffer(password) + flag


def opcode(number: int, body: bytes = b"") -> bytes:
    return i32(number) + body


def create(
    path: str | None,
    data: bytes | None = b"",
    acl: Iterable[Entry] | None = OPEN,
    flags: int = 0,
    *,
    number: int = 1,
) -> bytes:
    return opcode(number, ustring(path) + buffer(data) + acls(acl) + i32(flags))


def create2(path: str, data: bytes | None = b"", acl: Iterable[Entry] | None = OPEN, flags: int = 0) -> bytes:
    return create(path, data, acl, flags, number=15)


def create_container(path: str, flags: int = 4, acl: Iterable[Entry] | None = OPEN) -> bytes:
    return create(path, b"", acl, flags, number=19)


def create_ttl(path: str, ttl: int, flags: int = 5, data: bytes = b"") -> bytes:
    return create(path, data, OPEN, flags, number=21) + i64(ttl)


def delete(path: str | None, version: int = -1) -> bytes:
    return opcode(2, ustring(path) + i32(version))


def exists(path: str | None, watch: bool = False) -> bytes:
    return opcode(3, ustring(path) + boolean(watch))


def get_data(path: str | None, watch: bool = False) -> bytes:
    return opcode(4, ustring(path) + boolean(watch))


def set_data(path: str | None, data: bytes | None = b"", version: int = -1) -> bytes:
    return opcode(5, ustring(path) + buffer(data) + i32(version))


def get_acl(path: str | None) -> bytes:
    return opcode(6, ustring(path))


def set_acl(path: str | None, acl: Iterable[Entry] | None, version: int = -1) -> bytes:
    return opcode(7, ustring(path) + acls(acl) + i32(version))


def get_children(path: str | None, watch: bool = False) -> bytes:
    return opcode(8, ustring(path) + boolean(watch))


def get_children2(path: str | None, watch: bool = False) -> bytes:
    return opcode(12, ustring(path) + boolean(watch))


def sync(path: str | None) -> bytes:
    return opcode(9, ustring(path))


def ping() -> bytes:
    return opcode(11)


def check(path: str | None, version: int = -1) -> bytes:
    return opcode(13, ustring(path) + i32(version))


def reconfig(
    joining: str | None = None, leaving: str | None = None, members: str | None = None, config: int = -1
) -> bytes:
    return opcode(16, ustring(joining) + ustring(leaving) + ustring(members) + i64(config))


def check_watches(path: str | None, kind: int) -> bytes:
    return opcode(17, ustring(path) + i32(kind))


def remove_watches(path: str | None, kind: int) -> bytes:
    return opcode(18, ustring(path) + i32(kind))


def multi(*operations: bytes, number: int = 14) -> bytes:
    """Return a multi of operations that the other functions here have built."""
    parts = [operation[:4] + boolean(False) + i32(-1) + operation[4:] for operation in operations]
    return opcode(number, b"".join(parts) + i32(-1) + boolean(True) + i32(-1))


def multi_read(*operations: bytes) -> bytes:
    return multi(*operations, number=22)


def auth(scheme: str | None, credentials: bytes | None) -> bytes:
    return opcode(100, i32(0) + ustring(scheme) + buffer(credentials))


def set_watches(zxid: int, data: Iterable[str] = (), exist: Iterable[str] = (), child: Iterable[str] = ()) -> bytes:
    return opcode(101, i64(zxid) + ustrings(data) + ustrings(exist) + ustrings(child))


def set_watches2(
    zxid: int,
    data: Iterable[str] = (),
    exist: Iterable[str] = (),
    child: Iterable[str] = (),
    persistent: Iterable[str] = (),
    recursive: Iterable[str] = (),
) -> bytes:
    lists = (data, exist, child, persistent, recursive)
    return opcode(105, i64(zxid) + b"".join(map(ustrings, lists)))


def sasl(token: bytes | None) -> bytes:
    return opcode(102, buffer(token))


def get_ephemerals(prefix: str | None) -> bytes:
    return opcode(103, ustring(prefix))


def get_all_children_number(path: str | None) -> bytes:
    return opcode(104, ustring(path))


def add_watch(path: str | None, mode: int) -> bytes:
    return opcode(106, ustring(path) + i32(mode))


def whoami() -> bytes:
    return opcode(107)


def close_session() -> bytes:
    return opcode(-11)
