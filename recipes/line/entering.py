"""Entering a line: the create of a ticket's node, and the search for it when the answer was lost.

Knows nodes; what a list of the children means for a ticket is decided in waiting_ticket and position.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import zkwire
from recipes.common import lost_answers
from recipes.common.own_acl import own_acl, was_refused
from recipes.common.shared_nodes import make_container
from recipes.line.looks import Looks
from recipes.line.proofs import Proofs
from recipes.line.refusals import any_transient, is_transient, pause
from recipes.line.standing import Standing
from recipes.line.ticket import TicketNode
from zkwire import ACL, OPEN_ACL, Client, Create, GetChildren, GetData, join_path


class Entered(NamedTuple):
    """A ticket's node; what each read got that was sent behind its create; whether the line's node was created too."""

    node: TicketNode
    answers: list[Any]
    is_new_line: bool


@dataclass(slots=True, kw_only=True)
class Entrance:
    """Creates the nodes of tickets below `path`.

    Arguments: `prefix`, the part of a ticket's name between its unique id and its number; `reads`, the requests that
    are sent together with each create, the list of the children first; `data`, of the tickets' nodes; `acl`, of all
    nodes, None for the default: all clients may use the node at `path`, and a ticket has `own_acl`; `parent_data`,
    returns the data of the node at `path`, if it has to be created; `container`, the topmost node above the tickets
    that is created as a container; `standing`, the nodes that need not be created; `looks`, of the client at this line;
    `proofs`, how many proofs a ticket has; `creates_at_once`, whether a node that is not known to stand is created in
    the first write, or only when the server has said that it is missing.
    """

    zk: Client
    path: str
    prefix: str
    reads: Sequence[GetData | GetChildren]
    data: bytes
    acl: Sequence[ACL] | None
    parent_data: Callable[[], bytes]
    container: str
    standing: Standing
    looks: Looks
    proofs: int
    creates_at_once: bool

    async def enter(self) -> Entered:
        """Create a node and send the reads; one round trip, also at a path that is new below a parent that stands.

        If many tickets of this client list the line, this one shares a look behind its create.

        Nodes above the ticket that are not known to stand are created in the same write.  If the answer is lost, the
        node is searched for: its name begins with an id that no other node has.  After a transient refusal it asks
        again.
        Raises: what the client raises.
        Cancellation: the node is removed.
        """
        session_id, (unique, proofs) = self.zk.session_id, self._unique_name()
        loop = asyncio.get_running_loop()
        parents: list[str] = []
        # If another ticket of this client creates the line's node, ours comes behind it.  If that create fails, so does
        # ours, and the next try creates the node by itself.
        if self.creates_at_once and not self.standing.is_being_made(self.path):
            parents = self.standing.missing(self.path, loop.time())
        while True:
            ticket_acl = own_acl(self.zk, self.path) if self.acl is None else self.acl
            made, created, answers = await self._create_and_read(unique, ticket_acl, parents)
            if not isinstance(created, BaseException):
                path, stat = created
                is_new = bool(made) and not isinstance(made[-1], BaseException)
                self.standing.entered(self.path, loop.time(), is_ours=is_new)
                if not answers or any_transient(answers):
                    answers = await self._look(path)
                    if self.zk.session_id != stat.ephemeral_owner:  # the look is one of a later session
                        session_id, (unique, proofs) = self.zk.session_id, self._unique_name()
                        continue
                node = TicketNode(path, path.rpartition("/")[2], stat.czxid, stat.ephemeral_owner, proofs)
                return Entered(node, answers, is_new)
            if isinstance(created, zkwire.NoNodeError):
                parents = await self._parents_to_make(parents)
                continue
            if isinstance(created, zkwire.ConnectionLostError):
                found = await self._find(unique, proofs)
                if found is not None:
                    return found
                if self.zk.session_id != session_id:
                    # The session has expired meanwhile, and with it whatever it had created: begin anew.
                    session_id, (unique, proofs) = self.zk.session_id, self._unique_name()
                continue
            if isinstance(created, zkwire.InvalidACLError) and was_refused(self.zk, ticket_acl):
                continue
            if isinstance(created, zkwire.NodeExistsError):
                created.hint = "the sequence numbers below this parent are used up: delete it and make it anew"
            if is_transient(created):  # it was not carried out
                await pause()
                continue
            raise created

    async def _look(self, path: str) -> list[Any]:
        """Return the answers to the reads, sent behind the create of `path`, by a look that tickets may share."""
        try:
            return await self.looks.share(self.zk, self.path, self.reads)
        except BaseException:
            self.zk.discard(path)
            raise

    def _unique_name(self) -> tuple[str, Proofs | None]:
        """Return the name of a new ticket up to its number, and the proofs that belong to it."""
        unique, proofs = self.zk.unique_id(), None
        if self.proofs:
            proofs = Proofs(unique, self.proofs)
            unique = proofs.id
        return f"_c_{unique}-{self.prefix}", proofs

    async def _create_and_read(
        self, unique: str, ticket_acl: Sequence[ACL], parents: Sequence[str]
    ) -> tuple[list[Any], Any, list[Any]]:
        """Send the creates of `parents` and of the ticket, and the reads, in one write; return each one's result or
        error: those of the parents, that of the ticket, those of the reads.

        The reads are left out if many tickets of this client list the line.
        """
        looks = self.looks
        reads = () if looks.are_many else self.reads
        # The list goes behind the create: a server executes the requests of a session in order, so the list shows every
        # ticket that comes before ours.  No later ticket can.
        operations: list[Create | GetChildren | GetData] = [
            Create(join_path(self.path, unique), self.data, ephemeral=True, sequential=True, acl=ticket_acl),
            *reads,
        ]
        if parents:
            operations[:0] = [self._create_parent(at) for at in parents]
        lists = bool(reads)
        looks.own += lists
        try:
            with self.standing.making(self.path) if parents else nullcontext():
                answers = await self.zk.pipeline(operations)
        finally:
            looks.own -= lists
        count = len(parents)
        return answers[:count], answers[count], answers[count + 1 :]

    def _create_parent(self, at: str) -> Create:
        return Create(
            at,
            self.parent_data() if at == self.path else b"",
            container=at == self.container or at.startswith(f"{self.container}/"),
            acl=self._parents_acl,
        )

    async def _parents_to_make(self, parents: Sequence[str]) -> list[str]:
        """Return the nodes to create ahead of the next try; the last one has created `parents` first, and was refused
        because the line's node is missing.
        """
        every = zkwire.ancestors(self.path)
        if len(parents) == len(every):
            # The parents cannot be created like this: the chroot is missing, or the client has no right to create them.
            # `make_container` creates them, or raises the reason.
            try:
                await make_container(self.zk, self.path, self._parents_acl)
            except zkwire.ServerError as error:
                if not error.is_transient:
                    raise
                await pause()
        elif not parents:  # the server has deleted the empty container meanwhile
            self.standing.was_missing(self.path)
            return self.standing.missing(self.path, asyncio.get_running_loop().time())
        return every

    @property
    def _parents_acl(self) -> Sequence[ACL]:
        return OPEN_ACL if self.acl is None else self.acl

    async def _find(self, unique: str, proofs: Proofs | None) -> Entered | None:
        """Search for the node whose create lost its answer; return None if it was never created.

        Cancellation: the search goes on without the caller, and removes the node.
        """
        found = await lost_answers.find_created(
            self.zk, self.path, unique, lambda: self.looks.share(self.zk, self.path, self.reads)
        )
        # A node of a former session is about to go, and must not be taken for ours.
        if found is None or found.node.stat.ephemeral_owner != self.zk.session_id:
            return None
        stat = found.node.stat
        path = join_path(self.path, found.name)
        node = TicketNode(path, found.name, stat.czxid, stat.ephemeral_owner, proofs)
        return Entered(node, found.answers, is_new_line=False)
