"""A ticket: one ephemeral sequential node in a waiting line, with its removal and the watches around it.

Knows nothing of the order of the line (see position) and nothing of leases: a ticket may serve several leases, one
after the other.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import NamedTuple

from recipes.line.proofs import Proofs
from zkwire import GuaranteedDelete, Node, Watch, WatchSet


class TicketNode(NamedTuple):
    """The node of a ticket: its path and name, its fencing token (the zxid of its creation), and the owning session.

    `proofs`, those that belong to its name, None for a ticket whose data means nothing to other clients.
    """

    path: str
    name: str
    token: int
    session_id: int
    proofs: Proofs | None = None


@dataclass(slots=True)
class Ticket:
    """A node in the line that belongs to this client.

    Arguments: `node`; `removal`, deletes the node once it is started; `watches`, all watches of this ticket;
    `is_watched`, whether a watch on the ticket's own node is among them; `watch_request`, the request that sets that
    watch, while it is under way; `held_since`, when the first lease of this ticket began, on the loop's clock;
    `version`, of the node's data, as far as this client knows what it has written; `unanswered`, the data of its write
    that is under way, or whose answer was lost: it may have become the next version.
    """

    node: TicketNode
    removal: GuaranteedDelete
    watches: WatchSet = field(default_factory=WatchSet)
    is_watched: bool = False
    watch_request: asyncio.Task[tuple[Node, Watch]] | None = None
    held_since: float | None = None
    version: int = 0
    unanswered: bytes | None = None

    def is_own_data(self, node: Node) -> bool:
        """Return whether this client has written the data that was read as `node`.

        Each of its writes names the version that it replaces.  So all versions up to the last one are its own.
        """
        version = node.stat.version
        if version == self.version + 1 and node.data == self.unanswered:
            self.version, self.unanswered = version, None  # the write whose answer was lost
        return version <= self.version

    def give_up(self) -> None:
        """Delete the node, as soon as a server can be reached, and drop the watches."""
        self.removal.start()
        self.cancel_watch_request()
        self.watches.cancel()

    def cancel_watch_request(self) -> None:
        """Cancel the request for the watch on the ticket's own node, if it is under way."""
        request, self.watch_request = self.watch_request, None
        if request is not None:
            request.cancel()  # if it has failed, asyncio will not log any more that its exception was never retrieved
