"""Checks of the callers' arguments, and the requests for creates that are made of them.

Pure.  A bad argument raises an error before anything is sent, and the message shows the value, except where it
may be a secret.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

from zkwire import paths
from zkwire.session.credentials import scrub_traceback
from zkwire.wire.records import ACL, OPEN_ACL, Perms
from zkwire.wire.requests import (
    AnyCreate,
    Create2Request,
    CreateContainerRequest,
    CreateFlags,
    CreateRequest,
    CreateTTLRequest,
    RecoveredCreate2Request,
    RecoveredCreateContainerRequest,
    RecoveredCreateTTLRequest,
    TTLFlags,
)

# The data of a node; None is null, which Java clients can store too, and is read as b"".
Data: TypeAlias = bytes | bytearray | memoryview | None

# Tuples of entries that passed the check lately, by their ids.  Neither they nor their entries can change.
_CHECKED: Final[dict[int, Sequence[ACL]]] = {}
_MOST_CHECKED: Final = 100

_LONGEST_TTL: Final = 2**40 - 1  # milliseconds


def server_path(chroot: str, path: str) -> str:
    """Return the server's path for the caller's `path` below `chroot`.  Raises: TypeError, ValueError."""
    return paths.add_chroot(chroot, paths.validate(path))


def creation(
    chroot: str,
    path: str,
    data: Data,
    *,
    ephemeral: bool = False,
    sequential: bool = False,
    container: bool = False,
    ttl: float | None = None,
    acl: Sequence[ACL] = OPEN_ACL,
    with_stat: bool = False,
    recover: bool = False,
    protection: str = "",
) -> AnyCreate:
    """Return the request that creates `path` below `chroot`; arguments as those of Client.create, and two more.

    Args:
        with_stat: Whether the answer must have the node's Stat.
        protection: What to put before the last name, with a unique id; it implies `recover`.

    Raises:
        TypeError, ValueError: If an argument is bad.
    """
    paths.validate(path, sequential=sequential)
    if protection:
        parent, _, name = path.rpartition("/")
        path = f"{parent}/{protection}{name}"
    elif recover and not ephemeral and not paths.has_unique_id(path):
        raise ValueError(f"{path}: to recover a node that is not ephemeral, put a unique id into its name: `protected`")
    recover = recover or bool(protection)
    # A sequential node at "/" gets a name that is only a number.  With the chroot /app it must become /app/0000000001,
    # below the chroot: without the slash the server would create /app0000000001 beside it.
    full_path = f"{chroot}/" if path == "/" and sequential else paths.add_chroot(chroot, path)
    entries = checked_acl(acl)
    content = checked_data(data)
    if container:
        if ephemeral or sequential:
            raise ValueError(f"{path}: a container cannot be ephemeral or sequential")
        if ttl is not None:
            raise ValueError(f"{path}: a container cannot have a ttl: it is deleted after its last child")
        create_container = RecoveredCreateContainerRequest if recover else CreateContainerRequest
        return create_container(full_path, content, entries, CreateFlags.CONTAINER)
    if ttl is not None:
        if ephemeral:
            raise ValueError(f"{path}: an ephemeral node cannot have a ttl: it is deleted with its session")
        ttl_flags = TTLFlags.SEQUENTIAL if sequential else TTLFlags.PERSISTENT
        create_ttl = RecoveredCreateTTLRequest if recover else CreateTTLRequest
        return create_ttl(full_path, content, entries, ttl_flags, _milliseconds(ttl))
    flags = CreateFlags.EPHEMERAL * ephemeral | CreateFlags.SEQUENTIAL * sequential
    if recover:
        return RecoveredCreate2Request(full_path, content, entries, flags)
    return (Create2Request if with_stat else CreateRequest)(full_path, content, entries, flags)


def _milliseconds(ttl: float) -> int:
    if isinstance(ttl, bool) or not isinstance(ttl, int | float):
        raise TypeError(f"ttl must be a number of seconds, not {ttl!r}")
    if not 0.001 <= ttl <= _LONGEST_TTL / 1000:  # written so that a NaN is refused too
        raise ValueError(f"ttl must be at least 0.001 and at most {_LONGEST_TTL / 1000}, in seconds, not {ttl!r}")
    return round(ttl * 1000)


@scrub_traceback
def digest_acl(user: str, password: str, perms: int = Perms.ALL) -> ACL:
    """Return the ACL entry that allows `perms` to every client that authenticates as `user` with `password`.

    Only a hash of both leaves this process: base64(sha1("user:password")).  Do not use characters above U+FFFF in
    `user`: servers store them in a form that they cannot read back, and refuse the user after a restart.
    Raises: ValueError when `user` contains ":", because the server takes everything after it for the password;
    TypeError.
    """
    # Without the values in the errors: they may be the password, or the hash of one.
    if not isinstance(user, str) or not isinstance(password, str):
        raise TypeError(f"user and password must be str, not {type(user).__name__} and {type(password).__name__}")
    if ":" in user:
        raise ValueError("the user's name must not contain ':'")
    try:
        secret = f"{user}:{password}".encode()
    except UnicodeEncodeError:
        raise ValueError("user and password must have a UTF-8 form: one of them contains half a character") from None
    digest = base64.b64encode(hashlib.sha1(secret, usedforsecurity=False).digest()).decode()
    return ACL(perms, "digest", f"{user}:{digest}")


def checked_acl(acl: Sequence[ACL]) -> Sequence[ACL]:
    """Return the entries of `acl` if they can be encoded.  Raises: TypeError, ValueError."""
    # Nearly always: no need to check it again.  The entry keeps the tuple, and so no other object gets its id.
    if acl is OPEN_ACL or id(acl) in _CHECKED:
        return acl
    wanted = "acl must be a sequence of zkwire.ACL, each of an int and two str"
    # The errors do not show the values: an id may contain the hash of a password.
    if not isinstance(acl, Iterable):
        raise TypeError(f"{wanted}, not {type(acl).__name__}")
    entries = list(acl)
    for number, entry in enumerate(entries):
        if not isinstance(entry, ACL):
            raise TypeError(f"{wanted}, and number {number} is {type(entry).__name__}")
        kinds = [type(part) for part in (entry.perms, entry.scheme, entry.id)]
        if not issubclass(kinds[0], int) or kinds[1:] != [str, str]:
            raise TypeError(f"{wanted}, and number {number} is of {', '.join(kind.__name__ for kind in kinds)}")
        try:
            entry.encode()
        except ValueError as error:
            raise ValueError(f"acl cannot be sent, because of number {number}: {error}") from None
    if type(acl) is tuple:
        if len(_CHECKED) >= _MOST_CHECKED:
            _CHECKED.clear()
        _CHECKED[id(acl)] = acl
    return entries


def checked_data(data: Data) -> bytes | None:
    """Return `data` as immutable bytes.  Raises: TypeError."""
    if data is None or isinstance(data, bytes):
        return data
    if isinstance(data, bytearray | memoryview):
        return bytes(data)
    raise TypeError(f"data must be bytes, not {type(data).__name__}: encode it")


def checked_version(version: int) -> int:
    """Return `version` if it fits in 32 bits.  Raises: TypeError, ValueError."""
    if not isinstance(version, int):
        raise TypeError(f"version must be an int, not {version!r}")
    if not -(2**31) <= version < 2**31:
        raise ValueError(f"version must fit in 32 bits, and {version} does not")
    return version
