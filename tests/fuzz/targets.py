"""All targets by their names."""

from typing import Final

from tests.fuzz import texts, wire
from tests.fuzz.engine import Target

_ALL: Final[list[type[Target]]] = [
    wire.Frames,
    wire.Records,
    wire.Replies,
    wire.Requests,
    texts.ConnectStrings,
    texts.Configurations,
    texts.Words,
    texts.TicketData,
    texts.NodeData,
    texts.Names,
]


TARGETS: Final = {kind.name: kind for kind in _ALL}
