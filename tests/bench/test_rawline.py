"""bench/rawline.py: a session on a raw socket, against the server in memory."""

import pytest

from bench import frames, rawline
from bench.frames import RefusedError
from bench.rawline import RawSession
from zkwire.testing import ServerProcess

NAMES = [f"child-{number:06}" for number in range(1000)]


def test_the_answers_of_one_write_may_be_larger_than_the_buffer_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the answers, which come one after the other, the buffer holds one and a part of the next one."""
    monkeypatch.setattr(rawline, "BUFFER_SIZE", 20_000)
    with ServerProcess() as server:
        host, _, port = server.hosts.rpartition(":")
        with RawSession(host, int(port)) as session:
            rawline.make_path(session, "/parent")
            creates = [frames.create(f"/parent/{name}", frames.PERSISTENT) for name in NAMES]
            assert len(list(session.call_all(b"".join(creates), len(creates)))) == len(NAMES)
            listings = [frames.names(body) for body in session.call_all(frames.children("/parent") * 100, 100)]
    assert len(listings) == 100
    assert all(sorted(listing) == [name.encode() for name in NAMES] for listing in listings)


def test_a_tree_is_made_and_removed() -> None:
    with ServerProcess() as server:
        host, _, port = server.hosts.rpartition(":")
        with RawSession(host, int(port)) as session:
            rawline.make_path(session, "/a/b/c")
            rawline.make_path(session, "/a/b/d")
            with pytest.raises(RefusedError, match="error -101"):
                session.call(frames.get("/none"))
            rawline.remove_tree(session, "/a")
            assert session.call(frames.get("/a"), frames.NO_NODE)[1] == frames.NO_NODE
        assert rawline.server_version(host, int(port))
