"""The waiting line: a client takes a ticket, waits until the ticket owns, and takes a new one if it is lost meanwhile.

Locks of every kind, semaphores and elections differ only in what blocks a ticket, and in how many blockers an owner may
have (`slots`).

No list of the children is read at a hand-over.  Sequence numbers only grow.  So once a list has shown our own node, no
ticket can come before ours any more, and those before ours can only leave.  What the list showed, minus the departures
seen since, is therefore never less than the truth.  When it falls below `slots`, our ticket owns.
docs/waiting-line.md has the whole argument.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Final

import zkwire
from recipes.common.parent_acl import warn_if_wider
from recipes.common.this_process import or_in_words
from recipes.common.waiting import raise_unless_renewed
from recipes.line.certainty import Certainty, be_certain_soon
from recipes.line.entering import Entrance
from recipes.line.looks import looks_of
from recipes.line.position import every_contender
from recipes.line.sight import Sight
from recipes.line.standing import standing_of
from recipes.line.strangers import strangers_of
from recipes.line.ticket import Ticket
from recipes.line.trying import Onlooker, leave_out
from recipes.line.waiting_ticket import EvictedError, Rules, WaitingTicket
from zkwire import ACL, Client

LOCK_PREFIX: Final = "lock-"  # Curator's; go-zk's and kezhuw's Rust locks can wait in the same line, too


class Line:
    """One line of tickets, the children of the node at `path`.

    Arguments: `path`, created as a container when it is missing; `prefix`, the part of our tickets' names between the
    unique id and the number; `blocks`, `slots`, `ahead` and `ignores_shared`, see Rules; `data`, of the tickets' nodes,
    None for this process in words; `acl`, `parent_data`, `proofs` and `creates_at_once`, see Entrance; `container`, the
    topmost node above the tickets that is created as a container, `path` by default.
    """

    def __init__(
        self,
        zk: Client,
        path: str,
        *,
        prefix: str = LOCK_PREFIX,
        blocks: Callable[[str], bool] = every_contender,
        slots: int | Callable[[bytes], int] = 1,
        ahead: int = 1,
        ignores_shared: bool = False,
        data: bytes | None = None,
        acl: Sequence[ACL] | None = None,
        parent_data: Callable[[], bytes] = bytes,
        container: str | None = None,
        proofs: int = 0,
        creates_at_once: bool = True,
    ) -> None:
        self._zk = zk
        self.path = path
        self._acl = acl
        looks = looks_of(zk, path, reads_slots=callable(slots))
        self._rules = Rules(path, blocks, slots, ahead, ignores_shared, strangers_of(zk, path), looks)
        self._entrance = Entrance(
            zk=zk,
            path=path,
            prefix=prefix,
            reads=self._rules.reads(),
            data=or_in_words(data),
            acl=acl,
            parent_data=parent_data,
            container=path if container is None else container,
            standing=standing_of(zk),
            looks=looks,
            proofs=proofs,
            creates_at_once=creates_at_once,
        )

    async def acquire(self, sight: Sight | None = None) -> Ticket:
        """Take a ticket, wait until it owns, and return it; if its node is lost while it waits, take a new one.

        Arguments: `sight`, which takes note of what is seen on the way.
        Raises: what the client raises, but for an expired session that is renewed; what `slots` raises.
        Cancellation: the node is removed.
        """
        while True:
            try:
                waiting = await self._enter(sight)
                if waiting.owns:
                    return waiting.ticket
                return await waiting.wait()
            except zkwire.SessionExpiredError:
                raise_unless_renewed(self._zk)
            except EvictedError:
                pass

    async def try_acquire(self, sight: Sight | None = None) -> Ticket | None:
        """Take a ticket and return it if it owns at once; otherwise remove its node and return None.

        When the last try of this client has failed, look first, and take a ticket only if the lock is free.  Callers
        that try again and again would otherwise keep each other out: each would meet the tickets of the others.
        Raises, Cancellation: as `acquire`.
        Requests: a create and a list in one write and, if it fails, a delete; before that, in one try of two that meet
        a single ticket, a sync and a list at most twice (see WaitingTicket.check_blockers).  After a try that has
        failed: a sync and a list, and the others only if the lock is free.  If it fails for the second time because of
        the same ticket, a getData of that one.  Without it, a node that is no ticket would keep the lock from all
        callers that never wait.
        """
        strangers = self._rules.strangers
        while True:
            try:
                if strangers.was_in_vain and not await self._is_free(sight):
                    return None
                waiting = await self._enter(sight)
                await waiting.check_blockers()
                await waiting.make_certain()
            except zkwire.SessionExpiredError:
                raise_unless_renewed(self._zk)
                continue  # nothing is known yet
            except EvictedError:
                continue
            if waiting.owns:
                strangers.try_succeeded()
                return waiting.ticket
            await waiting.ticket.removal.start()
            # A ticket that was first, but whose session is not certain to be alive, says nothing about the lock.
            if not waiting.is_first:
                return None

    async def _is_free(self, sight: Sight | None) -> bool:
        """Look whether a ticket that were taken now would own.  Raises: what the client raises; what `slots` raises.

        The look is behind a sync: a lock that another client has released before this call is found free.
        """
        rules = self._rules
        names, *data = await rules.looks.share(self._zk, self.path, rules.reads())
        if isinstance(rules.slots, int):
            slots = rules.slots
        elif isinstance(data[0], zkwire.Node):
            slots = rules.slots(data[0].data)
        else:
            return True  # there is no line, or the ticket gets the refusal
        onlooker = Onlooker(names, rules.blocks, slots)
        if sight is not None:
            sight.begin(self.path, onlooker)
        await leave_out(self._zk, self.path, onlooker, rules.strangers, sight, ignores_shared=rules.ignores_shared)
        return onlooker.owns

    async def still_owns(self, ticket: Ticket) -> bool:
        """Return whether `ticket`, which owned when another task of this process passed it on, owns at this moment.

        Time may have passed since then, for example because the event loop was blocked.  If the session is not certain
        to be alive any more, ask the leader, and look whether the node is still there.  If not, or if the session is
        over, the ticket is given up.
        Raises: SessionError.
        Cancellation: the ticket is given up, as for any error.
        """
        certainty = Certainty(self._zk, ticket.node.session_id)
        try:
            names: Container[str] = (ticket.node.name,)
            while not certainty.is_enough() and certainty.is_present_session:
                await certainty.renew()
                names, *_ = await self._rules.looks.share(self._zk, self.path, self._rules.reads())
        except zkwire.SessionExpiredError:
            ticket.give_up()
            raise_unless_renewed(self._zk)
            return False
        except BaseException:
            ticket.give_up()
            raise
        if not certainty.is_present_session or ticket.node.name not in names:
            ticket.give_up()
            return False
        return True

    def leave(self, ticket: Ticket) -> None:
        """Give `ticket` up: its node is deleted as soon as a server can be reached."""
        ticket.give_up()

    async def _enter(self, sight: Sight | None) -> WaitingTicket:
        await be_certain_soon(self._zk)
        node, answers, is_new_line = await self._entrance.enter()
        ticket = Ticket(node, self._zk.guaranteed_delete(node.path))
        try:
            waiting = WaitingTicket(self._zk, self._rules, ticket, answers, sight)
            if self._acl is not None and not is_new_line:  # a new one has the ACL that was asked for
                await warn_if_wider(self._zk, self.path, self._acl)
        except BaseException:
            ticket.give_up()
            raise
        return waiting
