"""The shared records: what is not seen in the frames of tests/captures, and their constants."""

from zkwire.wire import records as r


def test_no_two_fields_of_a_stat_are_mixed_up() -> None:
    stat = r.Stat(
        czxid=1,
        mzxid=2,
        ctime=3,
        mtime=4,
        version=5,
        cversion=6,
        aversion=7,
        ephemeral_owner=8,
        data_length=9,
        num_children=10,
        pzxid=11,
    )
    assert stat.encode() == bytes.fromhex(
        "0000000000000001 0000000000000002 0000000000000003 0000000000000004 00000005 00000006 00000007"
        "0000000000000008 00000009 0000000a 000000000000000b"
    )


def test_an_event_with_a_null_path_has_an_empty_one() -> None:
    """A change of the session's state has no path."""
    assert r.WatcherEvent.decode(bytes.fromhex("ffffffff 00000000 ffffffff"), 0)[0] == r.WatcherEvent(-1, 0, "")


def test_permissions_have_the_bits_of_the_protocol() -> None:
    assert [(perm.name, perm.value) for perm in r.Perms] == [
        ("READ", 1),
        ("WRITE", 2),
        ("CREATE", 4),
        ("DELETE", 8),
        ("ADMIN", 16),
    ]
    assert int(r.Perms.ALL) == 31
    assert r.ACL(r.Perms.READ | r.Perms.WRITE, "ip", "::1").encode()[:4] == b"\0\0\0\3"


def test_the_reserved_xids_are_those_of_the_protocol() -> None:
    assert (r.EVENT_XID, r.PING_XID) == (-1, -2)
