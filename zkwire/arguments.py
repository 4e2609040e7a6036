"""What callers may say: arguments are checked here, and the requests for creates made of them.

Pure.  Everything that is wrong with an argument is told before anything is sent, with the value in the message.
"""

from __future__ import annotations

from collections.abc import Sequence

from zkwire import paths
from zkwire.records import ACL, OPEN_ACL
from zkwire.requests import (
    Create2Reply,
    Create2Request,
    CreateContainerRequest,
    CreateFlags,
    CreateRequest,
    Request,
)


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
    acl: Sequence[ACL] = OPEN_ACL,
) -> CreateRequest | CreateContainerRequest:
    """Return the request that creates `path` below `chroot`.  Raises: TypeError, ValueError."""
    paths.validate(path, sequential=sequential)
    # A sequential "/" has a name that is only a number, below the chroot and not beside it.
    at = f"{chroot}/" if path == "/" and sequential else paths.add_chroot(chroot, path)
    entries = checked_acl(acl)
    content = checked_data(data)
    if container:
        if ephemeral or sequential:
            raise ValueError(f"{path}: a container is neither ephemeral nor sequential")
        return CreateContainerRequest(at, content, entries, CreateFlags.CONTAINER)
    return CreateRequest(at, content, entries, CreateFlags.EPHEMERAL * ephemeral | CreateFlags.SEQUENTIAL * sequential)


def with_stat(creation: CreateRequest | CreateContainerRequest) -> Request[Create2Reply]:
    """Return the request that does the same and is answered with the Stat as well."""
    if isinstance(creation, CreateContainerRequest):
        return creation
    return Create2Request(creation.path, creation.data, creation.acl, creation.flags)


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
