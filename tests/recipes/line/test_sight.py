"""What the error of a bounded wait says of the tickets ahead."""

import sys

import pytest

from recipes.line import ticket_data
from recipes.line.position import Position
from recipes.line.proofs import Proofs
from recipes.line.sight import Sight
from zkwire import Node, Stat

PROOFS = Proofs("a secret", 2)
NAMES = [f"_c_{PROOFS.id}-lock-{number:010d}" for number in range(4)]
OWN = NAMES[3]


def read(data: bytes = b"", *, version: int = 0) -> Node:
    return Node(data, Stat(1, 1, 0, 0, version, 0, 0, -1, len(data), 0, 1))


def sight_of(*names: str) -> tuple[Sight, Position]:
    sight, position = Sight(), Position(OWN)
    sight.begin("/locks/a", position)
    position.listed([*names, OWN])
    return sight, position


def test_nothing_is_said_where_no_ticket_is_known_to_be_ahead() -> None:
    sight = Sight()
    assert sight.in_words() == ""
    sight.saw(NAMES[0], read())
    assert sight.in_words() == ""
    assert sight_of()[0].in_words() == ""


def test_the_number_of_tickets_ahead_and_the_first_of_them_are_named() -> None:
    assert sight_of(NAMES[1])[0].in_words() == f"; 1 ticket is ahead: /locks/a/{NAMES[1]}"
    sight, position = sight_of(*NAMES[:3])
    assert sight.in_words() == f"; 3 tickets are ahead, the first of them: /locks/a/{NAMES[0]}"
    position.departed(NAMES[0])
    assert sight.in_words() == f"; 2 tickets are ahead, the first of them: /locks/a/{NAMES[1]}"


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"", ""),
        (b"host-7", ", 'host-7'"),
        (b"x" * 100, f", '{'x' * 100}'"),
        (b"x" * 101, f", '{'x' * 100}...'"),
        (b"\xff\n'", ', "\N{REPLACEMENT CHARACTER}\\n\'"'),
    ],
)
def test_what_was_read_of_the_first_ticket_is_shown(data: bytes, shown: str) -> None:
    sight, position = sight_of(*NAMES[:2])
    sight.saw(NAMES[0], read(data))
    sight.saw(NAMES[1], read(b"behind"))
    begin = f"; 2 tickets are ahead, the first of them: /locks/a/{NAMES[0]}"
    assert sight.in_words() == f"{begin}, of session 0xffffffffffffffff{shown}"
    position.departed(NAMES[0])
    assert sight.in_words().endswith(f"{NAMES[1]}, of session 0xffffffffffffffff, 'behind'")


def test_the_line_that_a_holder_writes_ahead_of_its_data_is_not_shown() -> None:
    sight, _ = sight_of(NAMES[0])
    sight.saw(NAMES[0], read(ticket_data.limited(5.0, PROOFS.proof(1) or "", b"host-7"), version=1))
    assert sight.in_words().endswith(", 'host-7'")
    sight.saw(NAMES[0], read(ticket_data.limited(5.0, PROOFS.proof(1) or "", b""), version=1))
    assert sight.in_words().endswith(", of session 0xffffffffffffffff")


def test_what_was_read_of_tickets_that_have_left_is_forgotten() -> None:
    """A long wait sees many."""
    sight, position = sight_of(*NAMES[:3])
    node = read(b"the holder")
    unused = sys.getrefcount(node)
    sight.saw(NAMES[0], node)
    sight.saw(NAMES[1], read(b"the next one"))
    assert sys.getrefcount(node) > unused
    position.departed(NAMES[0])
    sight.saw(NAMES[2], read())
    assert sys.getrefcount(node) == unused
    assert sight.in_words().endswith(", 'the next one'")


def test_a_new_ticket_in_another_line_sees_nothing_of_the_former_one() -> None:
    sight, _ = sight_of(NAMES[0])
    sight.saw(NAMES[0], read(b"host-7"))
    position = Position(OWN)
    position.listed([NAMES[0], OWN])
    sight.begin("/other", position)
    assert sight.in_words() == f"; 1 ticket is ahead: /other/{NAMES[0]}"
