"""A warning about a recipe's node whose ACL allows more than the one that the caller has asked for.

The node may have been created by another client, with another ACL.  Then the caller's `acl=` protects less than it
seems to: the permission to delete a node, for example, comes from its parent.
"""

import logging
from collections.abc import Sequence
from typing import Final
from weakref import WeakKeyDictionary

from zkwire import ACL, Client, NoAuthError, Perms, ServerError, SessionExpiredError

_log = logging.getLogger(__name__)

# The paths whose ACL each client has read.  A program that uses ever new paths must fill neither the memory nor the
# log, so it reads no more than these.
_READ: Final[WeakKeyDictionary[Client, dict[str, None]]] = WeakKeyDictionary()
_MOST_REMEMBERED: Final = 1000


async def warn_if_wider(zk: Client, path: str, asked: Sequence[ACL] | None) -> None:
    """Log a warning if the ACL of the node at `path` allows more than `asked`; None: the caller asks for none.

    An expired session is no error of a warning: the caller's next request finds it out.

    Raises:
        SessionClosedError: if the client is closed.

    Cancellation:
        Harmless.

    Requests:
        None without `asked`.  Otherwise getACL when the client reads the ACL of this path for the first time, none
        afterwards, and none for new paths when it has read those of 1,000.
    """
    if asked is None:
        return
    read = _READ.setdefault(zk, {})
    if path in read or len(read) >= _MOST_REMEMBERED:
        return
    try:
        found, _ = await zk.get_acl(path)
    except NoAuthError:
        found = []  # neither READ nor ADMIN for this client, and it cannot know more
    except (ServerError, SessionExpiredError):
        return  # the next use of the path reads it again
    read[path] = None
    wider = beyond(found, asked)
    if wider:
        _log.warning(
            "%s exists with an ACL that allows more than acl= asks for: %s; clients that may create or delete nodes"
            " there can disturb this recipe; correct it with set_acl",
            path,
            ", ".join(f"{entry.scheme}:{entry.id} {Perms(entry.perms).name}" for entry in wider),
        )


def beyond(found: Sequence[ACL], asked: Sequence[ACL]) -> list[ACL]:
    """Return what the ACL `found` allows and `asked` does not.

    The scheme "auth" in `asked` stands for the identities of the client that asks.  They are not known here: so with it
    every identity but "world" and "ip" is taken for one of those.
    """
    wider = []
    for entry in found:
        perms = int(entry.perms)
        for allowed in asked:
            if _includes(allowed, entry):
                perms &= ~allowed.perms
        if perms:
            wider.append(ACL(perms, entry.scheme, entry.id))
    return wider


def _includes(allowed: ACL, entry: ACL) -> bool:
    """Return whether the identity of `allowed` includes the one of `entry`."""
    if allowed.scheme == "world" or (allowed.scheme, allowed.id) == (entry.scheme, entry.id):
        return True
    if allowed.scheme == "auth":
        return entry.scheme not in ("world", "ip")
    # A server hides the hash of a password from a client without ADMIN: "user:x".
    user = allowed.id.partition(":")[0]
    return allowed.scheme == entry.scheme == "digest" and entry.id == f"{user}:x"
