"""Access control: how ACLs are checked, stored and shown, and how a connection gains its identities."""

import base64
import hashlib
import re
from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, NamedTuple

from zkwire.errors import InvalidACLError, MarshallingError
from zkwire.testing.memory.refusal import Refused
from zkwire.wire.records import ACL


class Identity(NamedTuple):
    """One identity of a connection."""

    scheme: str
    id: str

    @property
    def user(self) -> str:
        """The user name that whoAmI shows."""
        if self.scheme == "digest":
            return self.id.partition(":")[0]
        return "" if self.scheme == "super" else self.id


SUPER: Final = Identity("super", "")


def ip_identity(peer: str) -> Identity:
    """Return the identity of a client's address; as in Java, IPv6 is written in full and IPv4 within it as IPv4."""
    address, _, zone = peer.partition("%")
    if ":" not in address:
        return Identity("ip", address)
    parsed = IPv6Address(address)
    if parsed.ipv4_mapped is not None:
        return Identity("ip", str(parsed.ipv4_mapped))
    groups = ":".join(f"{int(group, 16):x}" for group in parsed.exploded.split(":"))
    return Identity("ip", f"{groups}%{zone}" if zone else groups)


def digest_id(credentials: str) -> str:
    """Return "user:hash" for "user:password"."""
    digest = base64.b64encode(hashlib.sha1(credentials.encode()).digest()).decode()
    return f"{credentials.partition(':')[0]}:{digest}"


def authenticate(scheme: str | None, data: bytes | None, peer: Identity, super_digest: str | None) -> list[Identity]:
    """Return the identities that an auth request adds; an empty list means that it is refused."""
    if scheme == "ip":
        return [peer]
    if scheme != "digest" or data is None:
        return []
    identity = digest_id(data.decode("utf-8", "replace"))
    return [*([SUPER] if identity == super_digest else []), Identity("digest", identity)]


def is_allowed(acl: Sequence[ACL], perms: int, identities: Sequence[Identity]) -> bool:
    """Return whether `acl` grants one of the permissions `perms` to one of `identities`."""
    wanted = int(perms)  # "&" of two plain numbers costs much less than of two flags
    for entry in acl:
        if int(entry.perms) & wanted:
            if entry.scheme == "world":
                return True
            for scheme, id_ in identities:
                if scheme == entry.scheme and (_ip_matches(id_, entry.id) if scheme == "ip" else id_ == entry.id):
                    return True
    return not acl or SUPER in identities


def stored(acl: Sequence[ACL], identities: Sequence[Identity]) -> tuple[ACL, ...]:
    """Return `acl` as a node stores it: without repeats, `auth` replaced by the identities of the connection.

    Raises:
        Refused: if it has an entry that no node can have.
    """
    kept: list[ACL] = []
    for entry in {(entry.perms, entry.scheme, entry.id): entry for entry in acl}.values():
        if entry.scheme == "auth":
            own = [ACL(entry.perms, *identity) for identity in identities if identity.scheme == "digest"]
        else:
            own = [entry] if _is_valid(entry.scheme, entry.id) else []
        if not own:
            raise Refused(InvalidACLError)
        kept += own
    if not kept:
        raise Refused(InvalidACLError)
    return tuple(kept)


def masked(acl: Sequence[ACL]) -> list[ACL]:
    """Return `acl` without the hashes of passwords, for a client that may not administer the node."""
    return [
        ACL(entry.perms, entry.scheme, re.sub(":.*", ":x", entry.id)) if entry.scheme == "digest" else entry
        for entry in acl
    ]


def _is_valid(scheme: str, id_: str | None) -> bool:
    if scheme not in ("world", "digest", "ip"):
        return False
    if id_ is None:  # the real server fails on a null id in the same way
        raise Refused(MarshallingError)
    if scheme == "world":
        return id_ == "anyone"
    if scheme == "ip":
        return _network(id_) is not None
    return len(id_.rstrip(":").split(":")) == 2


def _ip_matches(peer: str, expression: str) -> bool:
    network = _network(expression)
    return network is not None and "%" not in peer and ip_address(peer) in network


def _network(expression: str) -> IPv4Network | IPv6Network | None:
    """Return the addresses that "10.0.0.1", "10.0.0.0/8" or "::1" means, None if it means none."""
    _, slash, bits = expression.partition("/")
    if "%" in expression or (slash and not bits.isdecimal()):
        return None
    try:
        return ip_network(expression, strict=False)
    except ValueError:
        return None
