"""Targets of text and data: connect strings, answers to four-letter words, configurations, and what recipes decode."""

from __future__ import annotations

from typing import Final

import zkwire
from recipes import counter, partitioner, semaphore
from recipes.double_barrier import rounds
from recipes.line import position, ticket_data
from recipes.line.ticket_data import HashChain
from recipes.queue import order
from tests.fuzz.engine import Target
from zkwire.client import four_letter_words
from zkwire.session import hosts


def connect_strings(data: bytes) -> None:
    """A connect string gives servers that are written and read again without a change, or a ValueError."""
    try:
        servers, chroot = hosts.parse(data.decode("utf-8", "surrogateescape"))
    except ValueError:
        return
    assert servers
    assert hosts.parse(",".join(map(str, servers)) + chroot) == (servers, chroot)


def configurations(data: bytes) -> None:
    """/zookeeper/config gives servers, whatever it contains; they can be written into a connect string."""
    for server in hosts.parse_config(data):
        assert hosts.parse(str(server)) == ([server], "")


def words(data: bytes) -> None:
    """The answer to a four-letter word is text, or a dict, or one of the documented errors."""
    word = data[:4].decode("latin-1")
    try:
        answer = four_letter_words.parse_answer(word, data[4:].decode(errors="replace"), hosts.Address("zk", 1))
    except zkwire.ZooKeeperError:
        return
    if word in ("mntr", "conf", "envi"):
        assert isinstance(answer, dict)
        assert sum(map(len, answer)) <= len(data)
    else:
        assert isinstance(answer, str)


_PROOFS: Final = HashChain("a secret", 2)
_TICKET: Final = f"_c_{_PROOFS.id}-lock-0000000001"
_PROOF: Final = _PROOFS.link(1) or ""
_UUID: Final = b"01234567-0123-0123-0123-0123456789ab"


def ticket(data: bytes) -> None:
    """What a holder writes is read as it was written, and anything without its proof is nothing."""
    read = ticket_data.parse(_TICKET, data, 1)
    for name, version in ((_TICKET, 0), (_TICKET, 2), ("_c_-lock-0000000001", 1), ("", 1)):
        assert ticket_data.parse(name, data, version) is None
    assert ticket_data.parse(_TICKET, ticket_data.shared(_PROOF, data), 1) == ticket_data.TicketData(None)
    if read is not None:
        assert _PROOF.encode() in data
        if read.limit is not None:
            assert ticket_data.parse(_TICKET, ticket_data.limited(read.limit, _PROOF, b""), 1) == read


def node_data(data: bytes) -> None:
    """Numbers that recipes keep in nodes are read, or refused with the documented ValueError."""
    for size in counter.SIZES:
        try:
            number = counter.decoded(data, size, "/a")
        except ValueError:
            continue
        assert counter.decoded(counter.encoded(number, size, "/a"), size, "/a") == number
    permits = semaphore.parse_permits(data)
    assert permits is None or semaphore.checked_permits(permits) == int(data)


def child_names(data: bytes) -> None:
    """The names of children, one a line, are put in an order that does not depend on how the server lists them."""
    names = list(dict.fromkeys(data.decode(errors="replace").split("\n")))
    for name in names:
        number = zkwire.sequence(name)
        assert number is None or -(2**31) <= number < 2**31
        if number is not None:
            contenders, count = position.Ranking(names).before(name, position.every_contender)
            assert name not in contenders[:count]
            assert set(contenders) <= set(names)
    backwards = names[::-1]
    assert order.in_order(names, 0) == order.in_order(backwards, 0)
    assert rounds.in_order(names, names[0]) == rounds.in_order(backwards, names[0])
    assert partitioner.fingerprint(names) == partitioner.fingerprint(backwards)


TARGETS: Final = (
    Target(
        "connect string",
        connect_strings,
        (b"zk1:2181,zk2/app", b"[::1]:2181", b"a", "zk\u00fc:1,b:65535/x/y".encode(), b"10.0.0.1:1 ,b"),
        (b",", b":", b"/", b"[", b"]", b"::1", b"\0", b" ", b"65536", "\u0663".encode(), b".."),
    ),
    Target(
        "config",
        configurations,
        (
            b"server.1=zk1:2888:3888:participant;0.0.0.0:2181\nserver.2=zk2:2888:3888:observer;2182\nversion=100000000",
            b"server.3=[::1]:2888:3888:participant;[::1]:2181\nserver.4=a:1:2|b:3:4:participant;;\n",
        ),
        (b"server.9=", b";", b":", b"|", b"\n", b"9" * 5000, b"[", b"]", "\u0663".encode()),
    ),
    Target(
        "four-letter words",
        words,
        (
            b"mntrzk_version\t3.9.5\nzk_avg_latency\t0.0\nzk_sum\t-12\nzk_big\t1.5E-7\n",
            b"confclientPort=2181\nserver.1=a:1:2\n",
            b"enviEnvironment:\nzookeeper.version=3.9\nhost.name=a\n",
            *(b"isronull", b"ruokimok", b"wchsThis ZooKeeper instance is not currently serving requests"),
            b"dumpdump is not executed because it is not in the whitelist.\n",
        ),
        (b"\t", b"=", b"\n", b"9" * 5000, b".5E-9", b"\r", "\u2028".encode()),
    ),
    Target(
        "ticket data",
        ticket,
        (
            *(b"zkwire shared %s\nx" % _PROOF.encode(), b"zkwire limit 12.500 %s\nx" % _PROOF.encode()),
            *(b"", b"data\nzkwire shared %s\n" % _PROOF.encode()),
        ),
        (b"zkwire ", b"shared ", b"limit ", b"0.000 ", b"9999999999.999 ", b"\n", _PROOF.encode()),
    ),
    Target(
        "node data",
        node_data,
        (b"12", b"\0\0\0\0\0\0\0\7", b"", b"2147483647", b"\0\0\0\1"),
        (b"0", b"9" * 5000, "\u0663".encode(), b"-", b"_"),
    ),
    Target(
        "names",
        child_names,
        (
            b"_c_0d3a-lock-0000000001\n_c_0d3b-lock-0000000002\nlock--000000001\nx",
            b"entry-100-0000000001\nentry-050-0000000002\nentry-100--000000003",
            b"01234567-0123-0123-0123-0123456789ab-of-3-0000000001\nready",
            b"a__READ__0000000001\n__WRIT__2147483647\nx--2147483648",
        ),
        (b"\n", b"-0000000001", b"--2147483648", b"9" * 5000, b"%b-of-" % _UUID, b"entry-", "\u0663".encode()),
    ),
)


def named(name: str) -> Target:
    """Return the target of that name."""
    return next(target for target in TARGETS if target.name == name)
