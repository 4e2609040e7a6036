"""All targets by their names."""

from collections.abc import Callable
from typing import Final

from tests.fuzz import texts, wire
from tests.fuzz.engine import Target

TARGETS: Final[dict[str, Callable[[], Target]]] = {
    wire.Frames.name: wire.Frames,
    wire.Records.name: wire.Records,
    wire.Replies.name: wire.Replies,
    wire.Requests.name: wire.Requests,
    texts.ConnectStrings.name: texts.ConnectStrings,
    texts.Configurations.name: texts.Configurations,
    texts.Words.name: texts.Words,
    texts.TicketData.name: texts.TicketData,
    texts.NodeData.name: texts.NodeData,
    texts.Names.name: texts.Names,
}
