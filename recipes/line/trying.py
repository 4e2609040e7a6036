"""What a caller that never waits does about the tickets in its way: a look without a ticket, reads of the first ones.

Knows blockers, in their order.  Whether a ticket is taken, and what becomes of it, is decided in line.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import zkwire
from recipes.line import ticket_data
from recipes.line.position import Ranking
from recipes.line.refusals import any_transient, pause
from recipes.line.sight import Sight
from recipes.line.strangers import Strangers, is_ticket, no_tickets
from zkwire import Client, GetData, Node, join_path


class Blockers(Protocol):
    """The tickets that may be in the way; see Position."""

    @property
    def before(self) -> list[str]: ...

    @property
    def first(self) -> list[str]: ...

    @property
    def owns(self) -> bool: ...

    def departed(self, name: str) -> None: ...


class Onlooker:
    """What a caller without a ticket sees of a line: all tickets come before one that it would take now.

    Arguments: `names`, the children of the line's node, with the number of the next one; `blocks` and `slots`, see
    Position.
    """

    def __init__(self, names: Ranking, blocks: Callable[[str], bool], slots: int) -> None:
        self.before = names.before_next(blocks)
        self._slots = slots

    @property
    def first(self) -> list[str]:
        """The blockers that come first in the line, as many as there are slots."""
        return self.before[: self._slots]

    @property
    def owns(self) -> bool:
        """Whether a ticket that were taken now would own."""
        return len(self.before) < self._slots

    def is_blocked_by(self, name: str) -> bool:
        """Return whether `name` is a blocker."""
        return name in self.before

    def departed(self, name: str) -> None:
        """Take note that the node `name` is gone, is no ticket, or does not block."""
        if name in self.before:
            self.before.remove(name)


async def leave_out(
    zk: Client, path: str, blockers: Blockers, strangers: Strangers, sight: Sight | None, *, ignores_shared: bool
) -> None:
    """Read the first of `blockers`, as many as there are slots, and leave out those that do not block.

    A blocker is read only if it has made a try fail before: in general it is a holder.  For each one that is left out
    the next one is read.  With `ignores_shared` a single blocker is read each time, because it may have let readers in:
    of several blockers one at least is no holder, and only a holder does so.
    Raises: the refusal to show a blocker, unless this client must not read it: then it goes on blocking.
    """
    if blockers.owns:
        return
    to_read = strangers.to_look_at(blockers.first)
    if ignores_shared and len(blockers.before) == 1:
        to_read = blockers.first
    seen = set(blockers.first)
    while to_read:
        nodes = await zk.pipeline([GetData(join_path(path, name)) for name in to_read])
        if any_transient(nodes):
            await pause()
            continue
        for name, node in zip(to_read, nodes, strict=True):
            if isinstance(node, Node):
                if not is_ticket(node.stat):
                    strangers.found_no_ticket(join_path(path, name))
                    blockers.departed(name)
                    continue
                strangers.looked_at(name)
                if sight is not None:
                    sight.saw(name, node)
                written = ticket_data.parse(name, node.data, node.stat.version)
                if ignores_shared and written is not None and written.is_shared:
                    blockers.departed(name)
            elif isinstance(node, zkwire.NoNodeError):
                blockers.departed(name)
            elif not isinstance(node, zkwire.NoAuthError):
                raise node
        if not (blockers.owns or all(is_ticket(node.stat) for node in nodes if isinstance(node, Node))):
            for name in await no_tickets(zk, path, [name for name in blockers.before if name not in seen]):
                blockers.departed(name)
        to_read = [] if blockers.owns else [name for name in blockers.first if name not in seen]
        seen.update(to_read)
