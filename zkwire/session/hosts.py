"""The servers of a client: the connect string, the shuffled order of attempts, the pauses between rounds.

Host names are kept as written and resolved at each attempt, so that a server may change its address.  Nothing here
opens connections or waits.
"""

import random
import re
from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

from zkwire import paths
from zkwire.errors import ProtocolError

DEFAULT_PORT: Final = 2181
CONFIG: Final = "/zookeeper/config"  # the node that lists the servers of an ensemble
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 5.0
_HOST: Final = re.compile(r"[^\s/,;@]{1,255}")  # the time of the codec for names grows with the square of the length
_MOST_CONFIG: Final = 64 * 1024  # bytes: 255 servers, which is the most, with 250 bytes each
_ANY_ADDRESS: Final = ("", "0.0.0.0", "::", "0:0:0:0:0:0:0:0")


class Address(NamedTuple):
    """One server of the ensemble, as the connect string names it."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse(connect_string: str) -> tuple[list[Address], str]:
    """Return the servers and the chroot ("" for none) of "host[:port],...[/chroot]"; IPv6 as "[address]:port".

    Raises: TypeError, ValueError with the string in it, unless it looks as if it contained a password.
    """
    if not isinstance(connect_string, str):
        raise TypeError(
            f"the connect string is a str, not {type(connect_string).__name__}: {connect_string!r}; write"
            " host:port,host:port/chroot"
        )
    servers, slash, rest = connect_string.partition("/")
    if re.match(r"(digest|sasl):[^,]*:", servers) or "@" in servers or ("@" in rest and rest.startswith("/")):
        raise ValueError(
            "bad connect string: it contains '@' or a credential; write host:port,host:port/chroot, and give"
            " credentials as `auth` or `sasl` of zkwire.connect"
        )
    mistake = _mistake(servers, rest)
    if mistake:
        raise ValueError(f"bad connect string {connect_string!r}: {mistake}; write host:port,host:port/chroot")
    chroot = "" if not rest.strip() else paths.validate("/" + rest)
    if slash and not servers.strip():
        raise ValueError(f"bad connect string {connect_string!r}: no server before the chroot")
    return [_address(server.strip(), connect_string) for server in servers.split(",")], chroot


def _mistake(servers: str, rest: str) -> str:
    """Return what was probably meant by a connect string that looks like one of another kind, "" for nothing."""
    if servers.endswith(":") and rest.startswith("/"):
        return f"a ZooKeeper server has no scheme, so leave out {servers + '//'!r}"
    if ";" in servers:
        return "servers are separated by ',', and a port follows ':'"
    if re.search(r"[^\s,]\s+[^\s,]", servers):
        return "servers are separated by ',', and not by spaces"
    if re.search(r"[,;\s][^/,;]*:\d", rest) or rest[:1] in (",", ";"):
        return "the chroot comes once, after the last server, and not after each"
    return ""


def _address(server: str, whole: str) -> Address:
    if server.startswith("["):
        host, closed, port = server[1:].partition("]")
        if not closed or (port and not port.startswith(":")):
            raise ValueError(f"bad connect string {whole!r}: {server!r} is not [address]:port")
        port = port[1:]
    else:
        host, _, port = server.partition(":")
    if _HOST.fullmatch(host) is None or not host.isprintable():  # it stands in the log
        raise ValueError(f"bad connect string {whole!r}: {server!r} is not a server; write host:port,host:port/chroot")
    try:
        # The resolver does this first.  A failure there would not be an OSError, and would end the session's loop.
        host.encode("idna")
    except UnicodeError:
        raise ValueError(f"bad connect string {whole!r}: {host!r} cannot be a host's name") from None
    if not port and not server.endswith(":"):
        return Address(host, DEFAULT_PORT)
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) < 65536):
        raise ValueError(f"bad connect string {whole!r}: {port!r} is not a port")
    return Address(host, int(port))


def parse_config(config: bytes) -> list[Address]:
    """Return the addresses that clients use of the servers in `config`, the content of /zookeeper/config.

    The line of a server is "server.1=host:2888:3888:participant;[address:]2181".  A server without a client port
    cannot be reached and is left out.  A wildcard address, such as 0.0.0.0, is replaced by the host.
    Raises: ProtocolError if it is larger than any list of servers.
    """
    return [address for _, address in _servers(config) if address is not None]


def is_listed(config: bytes, port: int, names: Collection[str]) -> bool:
    """Return whether `config`, see `parse_config`, lists a server with one of `names` and, if it says so, that `port`.

    An address that is not listed may be a balancer, which leads to several servers.
    Raises: as `parse_config`.
    """
    return any(
        host in names if address is None else address.host in names and address.port == port
        for host, address in _servers(config)
    )


def _servers(config: bytes) -> Iterator[tuple[str, Address | None]]:
    """Yield the host of each server, and the address for clients, None if there is none."""
    if len(config) > _MOST_CONFIG:
        raise ProtocolError(f"a list of servers has at most {_MOST_CONFIG} bytes, and {CONFIG} has {len(config)}")
    for line in config.decode(errors="replace").splitlines():
        key, _, value = line.strip().partition("=")
        if not key.startswith("server."):
            continue
        members, _, client = value.partition(";")
        # "host:2888:3888:role", perhaps followed by "|" and other addresses of the server; an IPv6 address in brackets.
        host = members[1:].partition("]")[0] if members.startswith("[") else members.partition(":")[0]
        address, _, port = client.partition(";")[0].strip().rpartition(":")
        address = address.strip("[]")
        if not (port.isascii() and port.isdigit() and len(port) <= 5):
            yield host, None
            continue
        named = Address(host if address in _ANY_ADDRESS else address, int(port))
        try:
            known = _address(str(named).strip(), line)
        except ValueError:
            continue  # not a valid host name or port
        yield host, known


class Hosts:
    """The servers in the order in which this client tries them, and how long it waits between two rounds.

    Args:
        addresses: At least one.
        timeout: The session timeout in seconds, which bounds the pauses; the session sets it again when a server has
            granted another one.
        rng: Shuffles the servers and jitters the pauses.
    """

    def __init__(self, addresses: list[Address], timeout: float, rng: random.Random) -> None:
        self._given = list(addresses)
        self._order = list(addresses)
        self._last_resort: list[Address] = []  # tried at the end of each round; see `replace`
        rng.shuffle(self._order)
        self._rng = rng
        self.timeout = timeout
        self._next = 0
        self._tried = 0
        self._failures: dict[Address, Exception] = {}

    def __len__(self) -> int:
        return len(self._order) + len(self._last_resort)

    def __contains__(self, address: Address) -> bool:
        return address in self._order or address in self._last_resort

    @property
    def longest_pause(self) -> float:
        """The longest pause between two rounds, in seconds.

        It follows from the session timeout, since a session must be resumed in time.  A server that grants a short one,
        and drops each connection, must not make the client connect without a pause.
        """
        return min(max(self.timeout / 10, _FIRST_PAUSE), _LONGEST_PAUSE)

    def next(self) -> Address:
        """Return the server to try now, and count the attempt; after the last server comes the first again."""
        address = self.peek()
        if self._tried % len(self) < len(self._order):
            self._next = (self._next + 1) % len(self._order)
        self._tried += 1
        return address

    def peek(self) -> Address:
        """Return the server that `next` will return, without counting an attempt."""
        turn = self._tried % len(self) - len(self._order)
        return self._order[self._next] if turn < 0 else self._last_resort[turn]

    def others(self, address: Address) -> list[Address]:
        """Return every server but `address`, in the order in which they would be tried."""
        turned = self._order[self._next :] + self._order[: self._next] + self._last_resort
        return [other for other in dict.fromkeys(turned) if other != address]

    def failed(self, address: Address, failure: Exception) -> None:
        """Record how the last attempt with `address` ended."""
        self._failures[address] = failure

    def failures(self) -> list[tuple[Address, Exception | None]]:
        """Return each server with the failure of the last attempt with it, None if there was none."""
        return [(address, self._failures.get(address)) for address in (*self._order, *self._last_resort)]

    def prefer(self, address: Address) -> None:
        """Make `address` the server to try now, without a pause; an address that is not listed is ignored."""
        if address in self._order:
            self._next = self._order.index(address)
            self._tried = 0
        elif address in self._last_resort:
            self._tried = len(self._order) + self._last_resort.index(address)

    def replace(self, addresses: list[Address], current: Address | None, *, follows: bool = False) -> bool:
        """Use another list of servers; return whether the client must leave `current`, its server, for another one.

        All clients of an ensemble call this with the same new list, each on its own.  Afterwards every server should
        have the same number of clients, and no more clients than necessary should have moved:

        - With S servers before and N > S after, a client whose server stays keeps it with the probability S/N, and
          otherwise moves to an added server.
        - The clients of removed servers choose between the remaining and the added servers with the probability that
          makes all servers even.

        This supposes that the clients were spread evenly before, and that each calls this once.

        Args:
            follows: Whether the list comes from the ensemble's configuration and not from the caller.  Then the servers
                that the caller has given remain the last resort: it may be that this client can reach no other one,
                because of names that only the servers can resolve.
        """
        known = set(self._order)
        old = len(known)
        order = list(dict.fromkeys(addresses))
        self._rng.shuffle(order)
        if not follows:
            self._given = order
        self._last_resort = [address for address in dict.fromkeys(self._given) if address not in order]
        stay = [address for address in order if address in known]
        new = [address for address in order if address not in known]
        self._tried = 0
        if current in order and self._rng.random() < old / len(order):
            self._order = order
            self._next = (order.index(current) + 1) % len(order)
            return False
        to_new = 1.0 if len(order) >= old else 1 - len(stay) * (old - len(order)) / (len(order) * (old - len(stay)))
        self._order = []
        while stay or new:
            takes_new = self._rng.random() < to_new
            self._order.append((new if new and (takes_new or not stay) else stay).pop())
        self._next = 0
        return True

    def reached(self) -> None:
        """Record that a connection has lasted: the pauses start small again."""
        self._tried = 0

    def pause(self) -> float:
        """Return how many seconds to wait before the next attempt: 0 within a round, then longer after each round."""
        rounds, within = divmod(self._tried, len(self))
        if within or not rounds:
            return 0.0
        return self.jittered(min(_FIRST_PAUSE * 2 ** min(rounds - 1, 10), self.longest_pause))

    def jittered(self, longest: float) -> float:
        """Return a random pause of at most `longest` seconds, so that not all clients connect at once."""
        return self._rng.uniform(longest / 2, longest)
