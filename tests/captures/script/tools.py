"""What the themes share: a short way to write an expected Stat, and names for error codes and create modes."""

from zkwire.wire.records import Stat

UNIMPLEMENTED, MARSHALLING, BAD_ARGUMENTS = -6, -5, -8
NO_NODE, NO_AUTH, BAD_VERSION, NO_CHILDREN_FOR_EPHEMERALS, NODE_EXISTS = -101, -102, -103, -108, -110
NOT_EMPTY, INVALID_ACL, AUTH_FAILED, NO_WATCHER, RECONFIG_DISABLED = -111, -114, -115, -121, -123
INCONSISTENCY = -2

EPHEMERAL, SEQUENTIAL, EPHEMERAL_SEQUENTIAL, CONTAINER, TTL, TTL_SEQUENTIAL = 1, 2, 3, 4, 5, 6
AUTH_XID, PING_XID, SET_WATCHES_XID = -4, -2, -8

# user:base64(sha1("user:password")), computed without zkwire.
BOB = "bob:ikIaKsbtGweaHnb/jKn7OHqbunM="  # bob:pw
ANN = "ann:7RJfAeIvrl4zdj6sS2fXrQHDvHM="  # ann:secret
SUPER = "super:xQJmxLMiHGwaqBvst5y6rkB6HQs="  # super:admin
SUPER_OPTION = f"-Dzookeeper.DigestAuthenticationProvider.superDigest={SUPER}"


def stat(
    made: int,
    *,
    changed: int | None = None,
    child_at: int | None = None,
    version: int = 0,
    cversion: int = 0,
    aversion: int = 0,
    owner: int = 0,
    length: int = 0,
    children: int = 0,
) -> Stat:
    """Return the Stat of a node created by the transaction `made`; times are 0, because Masker compares them."""
    mzxid = made if changed is None else changed
    pzxid = made if child_at is None else child_at
    return Stat(made, mzxid, 0, 0, version, cversion, aversion, owner, length, children, pzxid)
