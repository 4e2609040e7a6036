"""What the nodes of a line say about who holds it and who waits, without a server."""

from datetime import UTC
from unittest.mock import Mock

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import zkwire
from recipes.line import diagnostics as said
from recipes.line import ticket_data
from recipes.line.contenders import Contender, holders_first, in_line, single
from recipes.line.diagnostics import describe_session
from recipes.line.ticket_data import HashChain
from tests.support.everywhere import scene
from zkwire import NoAuthError, Node, NoNodeError, Stat

P = "/line"
US, THEM = 0x10, -1
LOCK, READ, WRITE = "_c_x-lock-", "_c_x-__READ__", "_c_x-__WRIT__"


def node(czxid: int, *, owner: int = THEM, data: bytes = b"", ctime: int = 0, version: int = 0) -> Node:
    return Node(data, Stat(czxid, czxid, ctime, 0, version, 0, 0, owner, len(data), 0, czxid))


def found(*line: tuple[str, Node | Exception], slots: int = 1) -> list[Contender]:
    names = [f"{kind}{number:010d}" for number, (kind, _) in enumerate(line)]
    return in_line(Mock(session_id=US), P, names, [each for _, each in line], slots=slots)


PROVEN = HashChain("a secret", 2)
SHARED = f"_c_{PROVEN.id}-__WRIT__"  # its data lets readers in
CHILDREN: dict[str, Node | Exception] = {
    "ticket": node(7, data=b"host-1"),
    "no ticket": node(7, owner=0),
    "gone": NoNodeError(NoNodeError.code, P),
    "unreadable": NoAuthError(NoAuthError.code, P),
    "shared": node(7, data=ticket_data.shared(PROVEN.link(1) or "", b"host-1"), version=1),
    "limited": node(7, data=ticket_data.limited(1.0, PROVEN.link(1) or "", b"host-1"), version=1),
}


@given(
    st.lists(st.tuples(st.sampled_from([LOCK, READ, WRITE, SHARED]), st.sampled_from(sorted(CHILDREN))), max_size=8),
    st.integers(1, 4),
)
@example([(SHARED, "limited"), (READ, "ticket")], 1)
def test_every_ticket_owns_that_has_fewer_than_slots_tickets_before_it_that_block_it(
    line: list[tuple[str, str]], slots: int
) -> None:
    tickets = [(number, kind, what) for number, (kind, what) in enumerate(line) if what not in ("no ticket", "gone")]
    expected = []
    for place, (number, kind, _) in enumerate(tickets):
        before = tickets[:place]
        if kind == READ:
            # A reader waits for no reader, and not for a writer that has proven to let it in.
            before = [each for each in before if each[1] != READ and each[1:] != (SHARED, "shared")]
        expected.append((f"{P}/{kind}{number:010d}", len(before) < slots))
    contenders = found(*((kind, CHILDREN[what]) for kind, what in line), slots=slots)
    assert [(each.path, each.owns) for each in contenders] == expected
    for each, (_, kind, what) in zip(contenders, tickets, strict=True):
        if what == "unreadable":
            assert (each.data, each.session, each.since, each.token, each.is_mine) == (b"", "", None, 0, False)
        elif what == "ticket" or kind == SHARED:
            assert each.data == b"host-1"


def test_another_error_of_a_read_is_raised() -> None:
    with pytest.raises(zkwire.ThrottledError):
        found((LOCK, node(1)), (LOCK, zkwire.ThrottledError(zkwire.ThrottledError.code, P)))


@pytest.mark.parametrize(
    ("ctime", "year"), [(0, 1970), (253_402_300_799_000, 9999), (2**62, 9999), (-62_135_596_800_000, 1), (-(2**62), 1)]
)
def test_a_clock_beyond_the_calendar_is_shown_as_its_end(ctime: int, year: int) -> None:
    (only,) = found((LOCK, node(1, ctime=ctime)))
    assert only.since is not None
    assert (only.since.year, only.since.tzinfo) == (year, UTC)


def test_a_session_is_printed_as_servers_do() -> None:
    assert [describe_session(session) for session in (0x1F, -(2**63))] == ["0x1f", "0x8000000000000000"]


def test_holders_come_first_and_each_group_keeps_its_order() -> None:
    line = found((READ, node(1)), (WRITE, node(2)), (READ, node(3)), slots=1)
    mixed = [line[1], line[0], line[2]]
    assert [each.token for each in holders_first(mixed)] == [1, 2, 3]


async def test_the_holder_of_a_lock_without_a_line() -> None:
    async with scene(P) as stage:
        zk = stage.zk
        assert single(zk, P, NoNodeError(NoNodeError.code, P)) == []
        assert single(zk, P, node(1, owner=0)) == []
        assert single(zk, P, NoAuthError(NoAuthError.code, P)) == [Contender(path=P, owns=True)]
        with pytest.raises(zkwire.ThrottledError):
            single(zk, P, zkwire.ThrottledError(zkwire.ThrottledError.code, P))
        (holder,) = single(zk, P, node(5, owner=zk.session_id))
        assert (holder.path, holder.token, holder.is_mine, holder.owns) == (P, 5, True, True)


async def test_a_wait_that_ends_at_the_head_of_the_line_names_no_ticket_of_a_former_wait() -> None:
    said.DIAGNOSTICS.set(diagnostics := said.WaitDiagnostics())
    for before, text in (["x-lock-0"], f"; 1 ticket is ahead: {P}/x-lock-0"), ([], ""):
        said.diagnose_before(P, Mock(before=before))
        assert diagnostics.text == text
