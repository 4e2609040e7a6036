"""Entering a line: the create of a ticket's node, and the search for it when the answer was lost.

Knows nodes; what a list of the children means for a ticket is decided in waiting_ticket and position.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import zkwire
from recipes.common import lost_answers
from recipes.common.own_acl import own_acl, was_refused
from recipes.common.shared_nodes import make_container
from recipes.line.proofs import Proofs
from recipes.line.refusals import any_transient, is_transient, pause
from recipes.line.ticket import TicketNode
from zkwire import ACL, OPEN_ACL, Client, Create, GetChildren, GetData, join_path


@dataclass(slots=True, kw_only=True)
class Entrance:
    """Creates the nodes of tickets below `path`.

    Arguments: `prefix`, the part of a ticket's name between its unique id and its number; `reads`, the requests that
    are sent together with each create, the list of the children first; `data`, of the tickets' nodes; `acl`, of all
    nodes, None for the default: all clients may use the node at `path`, and a ticket has `own_acl`; `parent_data`,
    returns the data of the node at `path`, if it has to be created; `container`, the topmost node above the tickets
    that is created as a container; `proofs`, how many proofs a ticket has.
    """

    zk: Client
    path: str
    prefix: str
    reads: Sequence[GetData | GetChildren]
    data: bytes
    acl: Sequence[ACL] | None
    parent_data: Callable[[], bytes]
    container: str
    proofs: int

    async def enter(self) -> tuple[TicketNode, list[Any]]:
        """Create a node and send the reads, in one round trip; return the node, and what each read got.

        Missing parents are created.  If the answer is lost, the node is searched for: its name begins with an id that
        no other node has.  After a transient refusal it asks again.
        Raises: what the client raises.
        Cancellation: the node is removed.
        """
        session_id, (unique, proofs) = self.zk.session_id, self._unique_name()
        make_parents = False
        while True:
            ticket_acl = own_acl(self.zk, self.path) if self.acl is None else self.acl
            created, answers = await self._create_and_read(unique, ticket_acl, make_parents)
            if isinstance(created, zkwire.NoNodeError):
                make_parents = True
                continue
            if isinstance(created, zkwire.ConnectionLostError):
                found = await self._find(unique, proofs)
                if found is not None:
                    return found
                if self.zk.session_id != session_id:
                    # The session has expired meanwhile, and with it whatever it had created: begin anew.
                    session_id, (unique, proofs) = self.zk.session_id, self._unique_name()
                    make_parents = False
                continue
            if isinstance(created, zkwire.InvalidACLError) and was_refused(self.zk, ticket_acl):
                continue
            if isinstance(created, zkwire.NodeExistsError):
                created.hint = "the sequence numbers below this parent are used up: delete it and make it anew"
            if is_transient(created):  # it was not carried out
                await pause()
                continue
            if isinstance(created, BaseException):
                raise created
            path, stat = created
            if any_transient(answers):
                answers = await self._read_again(path)
            return TicketNode(path, path.rpartition("/")[2], stat.czxid, stat.ephemeral_owner, proofs), answers

    async def _read_again(self, path: str) -> list[Any]:
        """Return the answers to the reads, which a server has refused for the moment, behind the create of `path`."""
        try:
            return await lost_answers.read(self.zk, self.path, *self.reads)
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
        self, unique: str, ticket_acl: Sequence[ACL], make_parents: bool
    ) -> tuple[Any, list[Any]]:
        """Send the create and the reads in one write; return for each its result, or its error."""
        parents_acl = OPEN_ACL if self.acl is None else self.acl
        parents = [
            Create(
                at,
                self.parent_data() if at == self.path else b"",
                container=at == self.container or at.startswith(f"{self.container}/"),
                acl=parents_acl,
            )
            for at in (zkwire.ancestors(self.path) if make_parents else ())
        ]
        # The list goes behind the create: a server executes the requests of a session in order, so the list shows every
        # ticket that comes before ours.  No later ticket can.
        answers = await self.zk.pipeline(
            [
                *parents,
                Create(join_path(self.path, unique), self.data, ephemeral=True, sequential=True, acl=ticket_acl),
                *self.reads,
            ]
        )
        created, *read = answers[len(parents) :]
        if make_parents and isinstance(created, zkwire.NoNodeError):
            # The parents cannot be created like this: the chroot is missing, or the client has no right to create them.
            # `make_container` creates them, or raises the reason.
            try:
                await make_container(self.zk, self.path, parents_acl)
            except zkwire.ServerError as error:
                if not error.is_transient:
                    raise
                await pause()
        return created, read

    async def _find(self, unique: str, proofs: Proofs | None) -> tuple[TicketNode, list[Any]] | None:
        """Search for the node whose create lost its answer; return None if it was never created.

        Cancellation: the search goes on without the caller, and removes the node.
        """
        found = await lost_answers.find_created(self.zk, self.path, unique, self.reads)
        # A node of a former session is about to go, and must not be taken for ours.
        if found is None or found.node.stat.ephemeral_owner != self.zk.session_id:
            return None
        stat = found.node.stat
        path = join_path(self.path, found.name)
        return TicketNode(path, found.name, stat.czxid, stat.ephemeral_owner, proofs), found.answers
