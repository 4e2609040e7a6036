"""Which servers there are and which to try next: the connect string, the shuffled order, the pauses between rounds.

Names are kept as written and resolved at each attempt, so that a server may change its address.
"""

from __future__ import annotations

import random
from typing import Final, NamedTuple

from zkwire import paths

DEFAULT_PORT: Final = 2181
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 5.0


class Address(NamedTuple):
    """One server of the ensemble, as the connect string names it."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse(connect_string: str) -> tuple[list[Address], str]:
    """Return the servers and the chroot ("" for none) of "host[:port],...[/chroot]"; IPv6 as "[address]:port".

    Raises: TypeError, ValueError with the string in it.
    """
    if not isinstance(connect_string, str):
        raise TypeError(f"the connect string is a str, not {type(connect_string).__name__}: {connect_string!r}")
    servers, slash, rest = connect_string.partition("/")
    chroot = "" if not rest.strip() else paths.validate("/" + rest)
    if slash and not servers.strip():
        raise ValueError(f"bad connect string {connect_string!r}: no server before the chroot")
    return [_address(server.strip(), connect_string) for server in servers.split(",")], chroot


def _address(server: str, whole: str) -> Address:
    if server.startswith("["):
        host, closed, port = server[1:].partition("]")
        if not closed or (port and not port.startswith(":")):
            raise ValueError(f"bad connect string {whole!r}: {server!r} is not [address]:port")
        port = port[1:]
    else:
        host, _, port = server.partition(":")
    if not host or any(character.isspace() for character in host):
        raise ValueError(f"bad connect string {whole!r}: {server!r} names no server; write host:port,host:port/chroot")
    try:
        host.encode("idna")  # what the resolver does first; it would fail at each attempt, and not with an OSError
    except UnicodeError:
        raise ValueError(f"bad connect string {whole!r}: {host!r} cannot be a host's name") from None
    if not port and not server.endswith(":"):
        return Address(host, DEFAULT_PORT)
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) < 65536):
        raise ValueError(f"bad connect string {whole!r}: {port!r} is no port")
    return Address(host, int(port))


class Hosts:
    """The servers in the order in which this client tries them, and how long it waits between two rounds.

    Arguments: `addresses`, at least one; `timeout`, the session timeout in seconds, which bounds the pauses; `rng`,
    which shuffles and jitters.
    """

    def __init__(self, addresses: list[Address], timeout: float, rng: random.Random) -> None:
        self._order = list(addresses)
        rng.shuffle(self._order)
        self._rng = rng
        self.longest_pause = min(timeout / 10, _LONGEST_PAUSE)
        self._next = 0
        self._tried = 0

    def __len__(self) -> int:
        return len(self._order)

    def next(self) -> Address:
        """Return the server to try now: the one behind the last, round and round."""
        address = self._order[self._next]
        self._next = (self._next + 1) % len(self._order)
        self._tried += 1
        return address

    def reached(self) -> None:
        """Note that the last one took us in and kept us: the pauses start small again."""
        self._tried = 0

    def pause(self) -> float:
        """Return how many seconds to wait before the next attempt: none within a round, then ever longer, jittered."""
        rounds, within = divmod(self._tried, len(self._order))
        if within or not rounds:
            return 0.0
        longest = min(_FIRST_PAUSE * 2 ** min(rounds - 1, 10), self.longest_pause)
        return self._rng.uniform(longest / 2, longest)
