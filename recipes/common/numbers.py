"""The order of children by the numbers that the server has given them.

Other clients may give children any number.  So the base of an order is never the number of a child of the list, but
one's own, or the number that the server will give next: no more than 2**31 numbers before it is every number that the
server has given, and no child can make these change places (pitfall 88).
"""

from collections.abc import Iterable

from zkwire import Stat, sequence, sequence_distance


def next_number(parent: Stat) -> int:
    """Return the number that the next sequential child of `parent` gets.

    From a server before 3.6 that has passed 2147483647 it is 2**31 less: as a base it gives the same order.
    """
    # The server has counted the creations, and shows twice their number less the children that exist, in 32 bits.
    return (parent.cversion + parent.num_children) % 2**32 // 2


def in_order(names: Iterable[str], base: int) -> list[str]:
    """Return those of `names` that have a sequence number, in the order of their distances to `base`."""
    numbered = [(sequence_distance(number, base), name) for name in names if (number := sequence(name)) is not None]
    return [name for _, name in sorted(numbered)]
