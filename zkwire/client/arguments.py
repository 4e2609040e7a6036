"""What callers may say: arguments are checked here, and the requests for creates made of them.

Pure.  Everything that is wrong with an argument is told before anything is sent, with the value in the message.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from typing import Final

from zkwire import paths
from zkwire.wire.records import ACL, OPEN_ACL, Perms
from zkwire.wire.requests import (
    AnyCreate,
    Create2Reply,
    Create2Request,
    CreateContainerRequest,
    CreateFlags,
    CreateRequest,
    CreateTTLRequest,
    Request,
    TTLFlags,
)

_LONGEST_TTL: Final = 2**40 - 1  # milliseconds


def server_path(chroot: str, path: str) -> str:
    """Return the server's name of what the caller below `chroot` calls `path`.  Raises: TypeError, ValueError."""
    return paths.add_chroot(chroot, paths.validate(path))


def creation(
    chroot: str,
    path: str,
    data: bytes | None,
    *,
    ephemeral: bool = False,
    sequential: bool = False,
    container: bool = False,
    ttl: float | None = None,
    acl: Sequence[ACL] = OPEN_ACL,
) -> AnyCreate:
    """Return the request that creates `path` below `chroot`.  Raises: TypeError, ValueError."""
    paths.validate(path, sequential=sequential)
    # A sequential "/" has a name that is only a number, below the chroot and not beside it.
    at = f"{chroot}/" if path == "/" and sequential else paths.add_chroot(chroot, path)
    entries = checked_acl(acl)
    content = checked_data(data)
    if container:
        if ephemeral or sequential:
            raise ValueError(f"{path}: a container is neither ephemeral nor sequential")
        if ttl is not None:
            raise ValueError(f"{path}: a container has no time to live: it goes when its last child is gone")
        return CreateContainerRequest(at, content, entries, CreateFlags.CONTAINER)
    if ttl is not None:
        if ephemeral:
            raise ValueError(f"{path}: an ephemeral node has no time to live: it goes with its session")
        flags = TTLFlags.SEQUENTIAL if sequential else TTLFlags.PERSISTENT
        return CreateTTLRequest(at, content, entries, flags, _milliseconds(ttl))
    return CreateRequest(at, content, entries, CreateFlags.EPHEMERAL * ephemeral | CreateFlags.SEQUENTIAL * sequential)


def with_stat(creation: AnyCreate) -> Request[Create2Reply]:
    """Return the request that does the same and is answered with the Stat as well."""
    if isinstance(creation, CreateRequest):
        return Create2Request(creation.path, creation.data, creation.acl, creation.flags)
    return creation


def _milliseconds(ttl: float) -> int:
    if isinstance(ttl, bool) or not isinstance(ttl, int | float):
        raise TypeError(f"ttl is a number of seconds, not {ttl!r}")
    if not 0.001 <= ttl <= _LONGEST_TTL / 1000:  # not a number is not, either
        raise ValueError(f"ttl must be at least 0.001 and at most {_LONGEST_TTL / 1000}, in seconds, not {ttl!r}")
    return round(ttl * 1000)


def digest_acl(user: str, password: str, perms: int = Perms.ALL) -> ACL:
    """Return the ACL entry that allows `perms` to whoever authenticates as `user` with `password`.

    Only a hash of both leaves this process, as base64(sha1("user:password")).
    Raises: ValueError when `user` contains ":", behind which the server takes everything for the password; TypeError.
    """
    if not isinstance(user, str) or not isinstance(password, str):
        raise TypeError("user and password are str")
    if ":" in user:
        raise ValueError(f"a user's name cannot contain ':', {user!r} does")
    secret = f"{user}:{password}".encode()
    known = base64.b64encode(hashlib.sha1(secret, usedforsecurity=False).digest()).decode()
    return ACL(perms, "digest", f"{user}:{known}")


def checked_acl(acl: Sequence[ACL]) -> Sequence[ACL]:
    """Return the entries of `acl` if the wire can carry them.  Raises: TypeError, ValueError."""
    if acl is OPEN_ACL:  # nearly always
        return acl
    try:
        entries = list(acl)
        for entry in entries:
            if not (isinstance(entry, ACL) and isinstance(entry.scheme, str) and isinstance(entry.id, str)):
                raise TypeError
            entry.encode()
    except (TypeError, AttributeError):
        raise TypeError(f"acl is a sequence of zkwire.ACL, each of an int and two str, not {acl!r}") from None
    except ValueError as error:
        raise ValueError(f"acl cannot be sent: {acl!r} ({error})") from None
    return entries


def checked_data(data: bytes | None) -> bytes | None:
    """Return `data` as bytes that nobody can change any more.  Raises: TypeError."""
    if data is None or isinstance(data, bytes):
        return data
    if isinstance(data, bytearray | memoryview):
        return bytes(data)
    raise TypeError(f"data is bytes, not {type(data).__name__}: encode it")


def checked_version(version: int) -> int:
    """Return `version` if the wire can carry it.  Raises: TypeError, ValueError."""
    if not isinstance(version, int):
        raise TypeError(f"a version is an int, not {version!r}")
    if not -(2**31) <= version < 2**31:
        raise ValueError(f"a version has 32 bits, {version} has more")
    return version
