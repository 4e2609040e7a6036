"""The default ACL of nodes that one session owns: all clients may read them, and only their maker may write into them.

The server knows the maker by its identity.  Without one, all clients may write.
"""

import logging
from collections.abc import Sequence
from typing import Final
from weakref import WeakKeyDictionary, WeakSet

from zkwire import ACL, READ_ONLY_ACL, Client, Perms

_log = logging.getLogger(__name__)

# ADMIN is given to no client: with it a client could take READ away from others, and the servers (from 3.8.4 and 3.9.2)
# report a node's deletion only to clients that may read it.  CREATE and DELETE mean nothing on a node without children:
# to delete the node itself takes the permission on its parent.
_OWN: Final = (ACL(Perms.READ | Perms.WRITE, "auth", ""), *READ_ONLY_ACL)
_EVERYONE: Final = (ACL(Perms.READ | Perms.WRITE, "world", "anyone"),)

# To a server these clients had no identity: with the number of those that they had shown by then.
_REFUSED: Final[WeakKeyDictionary[Client, int]] = WeakKeyDictionary()
_LOGGED: Final[WeakSet[Client]] = WeakSet()


def own_acl(zk: Client, path: str) -> Sequence[ACL]:
    """Return the ACL for a node that `zk` creates.

    If the client has no identity, all clients may write into its nodes; this is logged once for each client.

    Args:
        path: What the node belongs to, for the log.
    """
    identities = zk.identity_count
    if identities and _REFUSED.get(zk) != identities:
        return _OWN
    if zk not in _LOGGED:
        _LOGGED.add(zk)
        _log.info(
            "%s: all clients may write into the nodes of this client, because it has no identity: to have one, pass"
            " auth= or sasl= to connect",
            path,
        )
    return _EVERYONE


def was_refused(zk: Client, acl: Sequence[ACL]) -> bool:
    """Record that a server has refused `acl` as invalid; return whether `own_acl` now returns another one.

    It does if `acl` needs an identity.  That happens with TLS, for example: the client does not know whether it shows a
    certificate, and what the server makes of it.
    """
    if acl is not _OWN:
        return False
    _REFUSED[zk] = zk.identity_count
    return True
