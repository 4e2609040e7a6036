"""Which nodes a client takes for standing, and for how long; the requests that follow are in test_entering."""

import pytest

from recipes.line import standing as module
from recipes.line.standing import Standing, standing_of
from tests.support.everywhere import scene

LOCK = "/a/b/c"


def test_of_a_path_of_which_nothing_is_known_only_the_node_itself_is_missing() -> None:
    standing = Standing()
    assert standing.missing(LOCK, 0.0) == [LOCK]
    assert standing.missing("/lock", 0.0) == ["/lock"]


@pytest.mark.parametrize(
    ("known", "missing"),
    [
        ("/a", ["/a/b", "/a/b/c"]),
        ("/a/b", ["/a/b/c"]),
        ("/a/b/other", ["/a/b/c"]),
        ("/a/other/c", ["/a/b", "/a/b/c"]),
        ("/other/b/c", ["/a/b/c"]),
    ],
)
def test_all_nodes_below_the_lowest_one_that_stands_are_missing(known: str, missing: list[str]) -> None:
    for is_ours in (True, False):
        standing = Standing()
        standing.entered(known, 0.0, is_ours=is_ours)
        assert standing.missing(LOCK, 1.0) == missing
        # A container may go, but what stands above a ticket is taken for standing for good.
        if known.count("/") > 1:
            assert standing.missing(LOCK, 10.0**9) == missing


def test_a_node_that_others_use_stands_for_good() -> None:
    standing = Standing()
    standing.entered(LOCK, 0.0, is_ours=False)
    assert standing.missing(LOCK, 10.0**9) == []
    standing.entered(LOCK, 10.0**9, is_ours=False)
    assert standing.missing(LOCK, 10.0**10) == []


def test_a_container_that_this_client_has_created_stands_for_half_a_minute_after_each_use() -> None:
    standing = Standing()

    def stands_until(moment: float) -> bool:
        return (standing.missing(LOCK, moment - 0.1), standing.missing(LOCK, moment)) == ([], [LOCK])

    standing.entered(LOCK, 100.0, is_ours=True)
    assert stands_until(130.0)
    standing.entered(LOCK, 120.0, is_ours=False)  # it was not missing, as expected
    assert stands_until(150.0)
    standing.entered(LOCK, 110.0, is_ours=False)
    assert stands_until(150.0)
    standing.entered(LOCK, 150.0, is_ours=True)  # the server has deleted it meanwhile
    assert stands_until(180.0)
    standing.entered(LOCK, 180.0, is_ours=False)  # another client has created it
    assert standing.missing(LOCK, 10.0**9) == []


def test_a_node_that_was_missing_is_created_again() -> None:
    for is_ours in (True, False):
        standing = Standing()
        standing.was_missing(LOCK)
        standing.entered(LOCK, 0.0, is_ours=is_ours)
        standing.was_missing("/a/b")
        assert standing.missing(LOCK, 1.0) == []
        standing.was_missing(LOCK)
        assert standing.missing(LOCK, 1.0) == ["/a/b", LOCK]  # "/a" stands


def test_a_path_is_being_made_as_long_as_the_first_create_of_it_is_under_way() -> None:
    standing = Standing()
    assert not standing.is_being_made(LOCK)
    with standing.making(LOCK):
        assert standing.is_being_made(LOCK)
        assert not standing.is_being_made("/a/b")
        with standing.making(LOCK):
            assert standing.is_being_made(LOCK)
        assert standing.is_being_made(LOCK)
    assert not standing.is_being_made(LOCK)
    with pytest.raises(KeyError), standing.making(LOCK):
        raise KeyError
    assert not standing.is_being_made(LOCK)


def test_what_is_remembered_has_a_bound_and_is_kept_up_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_REMEMBERED", 8)
    standing = Standing()
    known = []
    for number in range(7):  # with their parent, eight nodes
        standing.entered(f"/locks/{number}", 0.0, is_ours=True)
        known.append(f"/locks/{number}")
        assert [path for path in known if standing.missing(path, 1.0)] == []
    standing.entered("/locks/0", 1.0, is_ours=False)  # no new one
    assert [path for path in known if standing.missing(path, 1.0)] == []
    standing.entered("/locks/7", 1.0, is_ours=True)
    assert standing.missing("/locks/7", 1.0) == []
    assert [path for path in known if not standing.missing(path, 1.0)] == []


async def test_each_client_remembers_for_itself() -> None:
    async with scene() as stage:
        standing_of(stage.zk).entered(LOCK, 0.0, is_ours=False)
        assert standing_of(stage.zk).missing(LOCK, 0.0) == []
        assert standing_of(stage.other).missing(LOCK, 0.0) == [LOCK]
