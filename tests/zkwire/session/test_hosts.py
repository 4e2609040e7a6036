"""The connect string, the shuffled order of servers, the pauses, and a change of the list."""

import random
import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkwire.errors import ProtocolError
from zkwire.session.hosts import Address, Hosts, is_listed, parse, parse_config

SERVERS = [Address(f"zk{number}", 2181) for number in range(6)]


# -- the connect string -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "servers", "chroot"),
    [
        ("zk1", [("zk1", 2181)], ""),
        ("zk1:2182", [("zk1", 2182)], ""),
        ("zk1:2181,zk2:2182,zk3", [("zk1", 2181), ("zk2", 2182), ("zk3", 2181)], ""),
        (" zk1 , zk2:1 ", [("zk1", 2181), ("zk2", 1)], ""),
        ("zk1/", [("zk1", 2181)], ""),
        ("zk1,zk2/app", [("zk1", 2181), ("zk2", 2181)], "/app"),
        ("zk1:2181/app/a b/ü", [("zk1", 2181)], "/app/a b/ü"),
        ("10.0.0.1:2181", [("10.0.0.1", 2181)], ""),
        ("[::1]", [("::1", 2181)], ""),
        ("[::1]:2182", [("::1", 2182)], ""),
        ("[fe80::1%eth0]:2181,zk1/app", [("fe80::1%eth0", 2181), ("zk1", 2181)], "/app"),
        ("zk1:65535", [("zk1", 65535)], ""),
        ("_zk._tcp.example.", [("_zk._tcp.example.", 2181)], ""),
        ("bücher.example:1", [("bücher.example", 1)], ""),
    ],
)
def test_a_connect_string_gives_servers_and_chroot(text: str, servers: list[tuple[str, int]], chroot: str) -> None:
    assert parse(text) == ([Address(*server) for server in servers], chroot)


@pytest.mark.parametrize(
    "text",
    [
        " ",
        ",",
        "zk1,",
        ",zk1",
        " /app",
        ":2181",
        "zk1:0",
        "zk1:-1",
        "zk1:+1",
        "zk1: 1",
        "zk1:port",
        "zk1:2181:2182",
        "zk1:٢",
        "zk1:²",
        "zk1:" + "1" * 5000,
        "::1",
        "fe80::1",
        "fe80::1:2181",
        "[]:2181",
        "zk 1:2181",
        "zk1\t2:2181",
    ],
)
def test_a_bad_connect_string_is_refused_and_shown(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(text))):
        parse(text)


ADVICE = "; write host:port,host:port/chroot"
SPACES = f"servers are separated by ',', and not by spaces{ADVICE}"
CHROOTS = f"the chroot comes once, after the last server, and not after each{ADVICE}"
SEMICOLON = f"servers are separated by ',', and a port follows ':'{ADVICE}"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("zk://zk1:2181/app", f"a ZooKeeper server has no scheme, so leave out 'zk://'{ADVICE}"),
        ("zk:/app", "'' is not a port"),
        ("", f"'' is not a server{ADVICE}"),
        ("zk1:002181", "'002181' is not a port"),
        ("zk1;zk2", SEMICOLON),
        ("zk1:2181;zk2:2181/app", SEMICOLON),
        ("zk1 zk2", SPACES),
        ("zk1:2181, zk2:2181 zk3:2181", SPACES),
        ("zk1:2181/app,zk2:2181/app", CHROOTS),
        ("zk1/app zk2:2181", CHROOTS),
        ("zk1/app;zk2:2181", CHROOTS),
        ("zk1/,zk2", CHROOTS),
        ("zk1/;zk2", CHROOTS),
        ("/app", "no server before the chroot"),
        ("zk1,,zk2", f"'' is not a server{ADVICE}"),
        ("zk1\0", f"'zk1\\x00' is not a server{ADVICE}"),
        ("zk\x1b[31m", f"'zk\\x1b[31m' is not a server{ADVICE}"),
        ("zk\u202e:1", f"'zk\\u202e:1' is not a server{ADVICE}"),
        ("\ud800", f"'\\ud800' is not a server{ADVICE}"),
        ("a." * 128, f"{'a.' * 128!r} is not a server{ADVICE}"),
        ("zk1:", "'' is not a port"),
        ("zk1:65536", "'65536' is not a port"),
        ("[::1", "'[::1' is not [address]:port"),
        ("[::1]2181", "'[::1]2181' is not [address]:port"),
        ("[::1]:", "'' is not a port"),
        ("[]", f"'[]' is not a server{ADVICE}"),
    ],
)
def test_the_refusal_of_a_connect_string_says_what_is_wrong_with_it(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match="bad connect string") as refused:
        parse(text)
    assert str(refused.value) == f"bad connect string {text!r}: {reason}"


@pytest.mark.parametrize("text", ["bob:Xq7@zk1:2181", "zk://bob:Xq7@zk1:2181/app", "zk1:2181,bob:Xq7@zk2"])
def test_a_connect_string_with_a_password_is_refused_and_not_shown(text: str) -> None:
    with pytest.raises(
        ValueError, match="contains '@' or a credential; write host:port,host:port/chroot, and give"
    ) as refused:
        parse(text)
    assert "Xq7" not in str(refused.value)


@pytest.mark.parametrize("chroot", ["/a b/c d", "/app,v2", "/a;b", "/a:1", "/a b:c", "/a@b:1"])
def test_a_chroot_may_look_a_little_like_a_second_server(chroot: str) -> None:
    assert parse(f"zk1:2181{chroot}") == ([Address("zk1", 2181)], chroot)


@pytest.mark.parametrize("host", ["zk..example", ".zk", "z" * 64, "zk." + "z" * 64])
def test_a_host_name_that_no_resolver_accepts_is_refused_at_once(host: str) -> None:
    """The resolver would raise UnicodeError, which is not an OSError, at every attempt to connect."""
    with pytest.raises(ValueError, match=re.escape(repr(host))):
        parse(f"zk1:2181,{host}:2181/app")


@pytest.mark.parametrize(
    ("text", "chroot"),
    [("zk1/app/", "/app/"), ("zk1//", "//"), ("zk1//app", "//app"), ("zk1/a/../b", "/a/../b"), ("zk1/a\n", "/a\n")],
)
def test_a_chroot_that_is_not_a_path_is_refused_and_shown(text: str, chroot: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(chroot))):
        parse(text)


@pytest.mark.parametrize("value", [None, b"zk1:2181", ["zk1"], 2181])
def test_a_connect_string_of_another_type_is_refused_and_shown(value: object) -> None:
    with pytest.raises(TypeError, match=re.escape(repr(value))):
        parse(value)  # type: ignore[arg-type]


@given(st.text(st.sampled_from("zk1:.,/[] \0é%-"), max_size=14) | st.text(max_size=10))
def test_any_text_is_parsed_or_refused_with_a_value_error(text: str) -> None:
    try:
        servers, chroot = parse(text)
    except ValueError:
        return
    assert servers
    assert all(server.host and 0 < server.port < 65536 for server in servers)
    assert chroot == "" or (chroot.startswith("/") and not chroot.endswith("/"))


# -- the order ----------------------------------------------------------------------------------------


@given(st.floats(0.0, 1e6), st.integers(), st.integers(1, 6))
def test_each_round_tries_every_server_in_one_order_and_the_pauses_between_rounds_grow_up_to_a_bound(
    timeout: float, seed: int, count: int
) -> None:
    """Pitfall 64.  The bound follows from the timeout, and has a bound itself.

    Else a server that grants a short timeout, and drops each connection, makes the client connect without end.
    """
    hosts = Hosts(SERVERS[:count], timeout, random.Random(seed))
    assert len(hosts) == count
    bound = min(5.0, max(timeout / 10, 0.05))
    assert hosts.longest_pause == bound
    first: list[Address] = []
    for rounds in range(30):
        tried: list[Address] = []
        for _ in range(count):
            assert hosts.pause() == 0 or (rounds and not tried)
            tried.append(hosts.next())
        assert sorted(tried) == SERVERS[:count]
        first = first or tried
        assert tried == first
        longest = min(0.05 * 2**rounds, bound)
        assert longest / 2 <= hosts.pause() <= longest


def test_clients_begin_with_different_servers() -> None:
    assert {Hosts(SERVERS, 10.0, random.Random(seed)).next() for seed in range(50)} == {*SERVERS}


# -- another list of servers --------------------------------------------------------------------------


def _servers(*numbers: int) -> list[Address]:
    return [Address(f"zk{number}", 2181) for number in numbers]


def _loads(before: list[Address], after: list[Address], clients: int = 3000) -> tuple[dict[Address, int], int]:
    """Return how many clients each server has after the change, and how many have moved; spread evenly before."""
    loads: Counter[Address] = Counter()
    moved = 0
    rng = random.Random(1)
    for number in range(clients):
        client = Hosts(before, 10.0, rng)
        current = before[number % len(before)]
        if client.replace(after, current):
            moved += 1
            current = client.next()
        loads[current] += 1
    return dict(loads), moved


@pytest.mark.parametrize(
    ("before", "after", "share"),
    [
        ([1, 2, 3], [1, 2, 3, 4], 1 / 4),  # only as many move as the new server needs
        ([1, 2, 3], [1, 2, 3, 4, 5, 6], 1 / 2),
        ([1, 2, 3, 4], [1, 2, 3], 1 / 4),  # only the clients of the removed server move
        ([1, 2, 3], [1, 2, 4], 1 / 3),
        ([1, 2, 3], [4, 5, 6], 1),
        ([1, 2, 3, 4, 5], [1, 2, 6], 3 / 5),
        ([1, 2, 3], [2, 3, 4, 5], 1 / 2),
        ([1], [2], 1),
        ([1, 2, 3], [3, 2, 1], 0),
    ],
)
def test_a_new_list_spreads_the_clients_evenly_and_moves_no_more_than_necessary(
    before: list[int], after: list[int], share: float
) -> None:
    loads, moved = _loads(_servers(*before), _servers(*after))
    assert set(loads) == set(_servers(*after))
    for load in loads.values():
        assert load * len(after) == pytest.approx(3000, rel=0.1)
    assert moved == pytest.approx(share * 3000, rel=0.1)


@given(
    st.lists(st.sampled_from(SERVERS), min_size=1),
    st.lists(st.sampled_from(SERVERS), min_size=1),
    st.sampled_from([None, *SERVERS]),
    st.integers(0, 1000),
)
def test_a_round_tries_exactly_the_servers_of_the_new_list(
    before: list[Address], after: list[Address], current: Address | None, seed: int
) -> None:
    client = Hosts(before, 10.0, random.Random(seed))
    client.next()
    must_move = client.replace(after, current)
    assert must_move or current in after
    assert client.pause() == 0
    round_ = [client.next() for _ in range(len(client))]
    assert sorted(round_) == sorted(set(after))
    if not must_move:
        assert round_[-1] == current, "the present server is the last to be tried when it is lost"


def test_the_given_servers_are_the_last_resort_of_a_client_that_follows_the_configuration() -> None:
    given, first, second = _servers(1, 2, 3)
    hosts = Hosts([given], 10.0, random.Random(1))
    assert hosts.replace([first, second], given, follows=True)
    assert len(hosts) == 3
    assert all(server in hosts for server in (given, first, second))
    assert _servers(4)[0] not in hosts
    order = [*hosts.others(given), given]
    for _ in range(3):
        tried, pauses = [hosts.next()], [hosts.pause()]
        for _ in range(2):
            tried.append(hosts.next())
            pauses.append(hosts.pause())
        assert tried == order
        assert [pause > 0 for pause in pauses] == [False, False, True]
    hosts.next()
    hosts.reached()  # a connection that lasted: the next one to be tried is a listed server again, not the given one
    assert [hosts.next(), hosts.next(), hosts.next()][2] == given
    hosts.prefer(given)
    hosts.prefer(Address("unknown", 1))
    assert (hosts.peek(), hosts.pause()) == (given, 0.0)
    assert set(hosts.others(first)) == {second, given}
    hosts.prefer(first)  # begins a whole round
    assert [hosts.next() for _ in range(3)] == [first, second, given]
    assert not hosts.replace([second, given], given, follows=True)
    assert len(hosts) == 2


def test_a_list_that_the_caller_sets_leaves_no_last_resort() -> None:
    given, first, second = _servers(1, 2, 3)
    hosts = Hosts([given], 10.0, random.Random(1))
    hosts.replace([first], given, follows=True)
    assert hosts.replace([second], given)
    assert (len(hosts), hosts.next(), hosts.next()) == (1, second, second)
    assert given not in hosts
    hosts.replace([first], second, follows=True)
    assert [hosts.next(), hosts.next()] == [first, second]


@pytest.mark.parametrize(
    ("config", "wanted"),
    [
        ("", []),
        ("version=100000000", []),
        ("server.1=zk1:2888:3888:participant;2181\nversion=1", ["zk1:2181"]),
        ("server.1=zk1:2888:3888:participant;0.0.0.0:2181", ["zk1:2181"]),
        ("server.1=10.0.0.1:2888:3888;10.1.0.1:2182\nserver.2=zk2:1:2:observer;2183\n", ["10.1.0.1:2182", "zk2:2183"]),
        ("server.1=[::1]:2888:3888:participant;[::]:2181", ["[::1]:2181"]),
        ("server.1=[::1]:2888:3888:participant;2181", ["[::1]:2181"]),
        ("server.1=zk1:2888:3888:participant;[0:0:0:0:0:0:0:0]:2181", ["zk1:2181"]),
        ("version=1\ngroup.1=zk1:2:3;2181\nserver.1=zk1:2:3\nserver.2=zk..2:2:3;2181\nserver.3=zk3:2:3;81", ["zk3:81"]),
        (
            "server.1=zk1:2888:3888;02181\nserver.2=zk2:2888:3888;65535\n server.3 = zk3:1:2 ; 2181",
            ["zk1:2181", "zk2:65535", "zk3:2181"],
        ),
        ("server.1=zk1:2888:3888;002181\nserver.2=zk2:1:2;²\nserver.3=zk3:1:2;" + "1" * 5000, []),
        ("server.1=[::1]:2888:3888:participant;[fe80::1]:2181", ["[fe80::1]:2181"]),
        ("server.1=zk1:2888:3888|zk1b:2888:3888:participant;2181", ["zk1:2181"]),
        ("server.1=zk1:2888:3888:participant;0.0.0.0:2181;0.0.0.0:2281", ["zk1:2181"]),
        ("server.1=zk1:2888:3888:participant", []),  # its client port is in its own configuration only
        ("server.1=zk1:2888:3888;99999\nserver.2=zk..2:1:2;2181\nserver.3=:1:2;2181\nserver.4=z k:1:2;2181", []),
        ("server.1=zk1:2888:3888;x\nnonsense\nserver.=;\n\xff", []),
        ("server.1=zk\x1b[1m:2:3;2181\nserver.2=zk2:2:3;\x7f:2181\nserver.3=zk3:2:3;81", ["zk3:81"]),  # would be logged
        ("".join(f"server.1=a{no}b:2:3;81\n" for no in "/,@ "), []),
        (f"server.1={'a.' * 127}a:2:3;81\nserver.2={'é.' * 32_000}:2:3;81", [f"{'a.' * 127}a:81"]),
    ],
)
def test_the_addresses_of_servers_are_read_from_the_ensembles_configuration(config: str, wanted: list[str]) -> None:
    assert [str(address) for address in parse_config(config.encode("latin-1"))] == wanted


def test_what_is_larger_than_any_list_of_servers_is_refused_and_not_read() -> None:
    """The event loop would be blocked for minutes."""
    config = b"server.1=zk1:2888:3888:participant;2181\n".ljust(2**16)
    assert parse_config(config) == [Address("zk1", 2181)]
    for read in (parse_config, lambda config: is_listed(config, 2181, {"zk1"})):
        with pytest.raises(ProtocolError, match=r"at most 65536 bytes, and /zookeeper/config has 65537$"):
            read(config + b"\n")


@pytest.mark.parametrize(
    ("address", "port", "is_there"),
    [(";zk1:2181", 2181, True), (";zk1:2181", 2182, False), (";zk2:2181", 2181, False), ("", 2182, True)],
)
def test_a_server_is_listed_by_its_name_and_by_its_port_if_it_says_one(address: str, port: int, is_there: bool) -> None:
    config = f"server.1=zk1:2888:3888:participant{address}".encode()
    assert is_listed(config, port, {"zk1"}) is is_there
    assert not is_listed(config, port, {"zk9"})
