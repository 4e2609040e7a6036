"""The waiting line: a client takes a ticket, waits until the ticket owns, and takes a new one if it is lost meanwhile.

Locks of every kind, semaphores and elections differ only in what blocks a ticket, and in how many blockers an owner may
have (`slots`).

No list of the children is read at a hand-over.  Sequence numbers only grow.  So once a list has shown our own node, no
ticket can come before ours any more, and those before ours can only leave.  What the list showed, minus the departures
seen since, is therefore never less than the truth.  When it falls below `slots`, our ticket owns.
docs/waiting-line.md has the whole argument.
"""

import asyncio
import re
from collections.abc import Callable, Container, Sequence
from itertools import takewhile
from typing import Any, Final

import zkwire
from recipes.common.checks import checked_client
from recipes.common.own_acl import own_acl, was_refused
from recipes.common.parent_acl import warn_if_wider
from recipes.common.retrying import any_transient, pause_if_transient, raise_unless_renewed, read_synced, result
from recipes.common.shared_nodes import make_container
from recipes.common.this_process import or_described
from recipes.line.diagnostics import describe_session, diagnose_before
from recipes.line.known import KnownLine, known_of, line_of
from recipes.line.lease import WRITTEN_OVER, LockLostError
from recipes.line.position import ranked
from recipes.line.ticket import LOCK_PREFIX, Ticket, TicketNode, checked_content
from recipes.line.ticket_data import HashChain, parse
from recipes.line.waiting import EvictedError, Rules, WaitingTicket, certify
from zkwire import ACL, OPEN_ACL, Client, Create, GetChildren, GetChildrenAndStat, GetData, Node, join_path

_GONE: Final = "it was released, or its session is over, or another client has deleted it"


class Line:
    """One line of tickets, the children of the node at `path`.

    Args:
        path: The line's node, created as a container when it is missing.
        prefix: The part of our tickets' names between the unique id and the number.
        rules: Returns which tickets wait for which, given what the client knows of the line.
        data: The data of the tickets' nodes; None: this process, described.
        acl: The ACL of all nodes; None: all clients may use the node at `path`, and a ticket has `own_acl`.
        parent_data: Returns the data of the node at `path`, if it has to be created.
        container: The topmost node above the tickets that is created as a container, `path` by default.
        links: How many links the hash chain of a ticket's name has; 0 for a ticket that writes nothing into its node.
        creates_at_once: Whether a node that is not known to exist is created in the first write, or only when the
            server has said that it is missing.

    Attributes:
        data: Of the tickets' nodes.
    """

    def __init__(
        self,
        zk: Client,
        path: str,
        *,
        prefix: str = LOCK_PREFIX,
        rules: Callable[[KnownLine], Rules] = Rules,
        data: bytes | None = None,
        acl: Sequence[ACL] | None = None,
        parent_data: Callable[[], bytes] = bytes,
        container: str | None = None,
        links: int = 0,
        creates_at_once: bool = True,
    ) -> None:
        self._zk = checked_client(zk)
        self.path = path
        self._prefix = prefix
        self.data: bytes = checked_content(or_described(data))
        self._acl = acl
        self._parents_acl = OPEN_ACL if acl is None else acl
        self._own_acl: tuple[int, Sequence[ACL]] | None = None  # and for how many identities of the client
        self._parent_data = parent_data
        self._container = path if container is None else container
        self._links = links
        self._creates_at_once = creates_at_once
        self._known = line_of(self._zk, path)
        self._of_client = known_of(self._zk)
        self._parents = self._of_client.parents
        self._rules = rules(self._known)

    async def acquire(self) -> Ticket:
        """Take a ticket, wait until it owns, and return it; if its node is lost while it waits, take a new one.

        What the client and `slots` raise is raised, but for an expired session that is renewed.

        Cancellation:
            The node is removed.
        """
        while True:
            try:
                waiting = await self._enter()
                return waiting.ticket if waiting.owns else await waiting.wait()
            except zkwire.SessionExpiredError:
                raise_unless_renewed(self._zk)
            except EvictedError:
                pass

    async def try_acquire(self) -> Ticket | None:
        """Take a ticket and return it if it owns at once; otherwise remove its node and return None.

        When the last try of this client has failed, look first, and take a ticket only if the lock is free.  Callers
        that try again and again would otherwise keep each other out: each would meet the tickets of the others.
        It raises what `acquire` raises.

        Cancellation:
            The node is removed.

        Requests:
            A create and a list in one write and, if it fails, a delete; before that, in one try of two that meet a
            single ticket, a sync and a list at most twice (see WaitingTicket.find_out).  After a try that has failed: a
            sync and a list, and the others only if the lock is free; with `looks_first` always.  If it fails for the
            second time because of the same ticket, or with `looks_first` for the first time, a getData of that one.
            Without it, a foreign node would keep the lock from all callers that never wait.
        """
        while True:
            try:
                if (self._rules.looks_first or self._known.blocked_by) and not await self._is_free():
                    return None
                waiting = await self._enter()
                await waiting.find_out()
            except zkwire.SessionExpiredError:
                raise_unless_renewed(self._zk)
                continue  # nothing is known yet
            except EvictedError:
                continue
            if waiting.owns:
                self._known.blocked_by = {}
                return waiting.ticket
            await waiting.ticket.removal.start()
            # A ticket that was first, but whose session is not certain to be alive, says nothing about the lock.
            if not waiting.is_first:
                return None

    async def _is_free(self) -> bool:
        """Return whether a ticket that were taken now would own.

        It asks after a sync: a lock that another client has released before this call is found free.
        """
        rules = self._rules
        children, *slots = await self._known.look(self._zk, *rules.reads_slots())
        position = rules.position(f"{children.next_number:010d}")
        position.listed(children)
        if not isinstance(rules.slots, int):
            if not isinstance(slots[0], Node):
                return True  # there is no line, or the ticket gets the refusal
            position.slots_read(rules.slots(slots[0]))
        await rules.leave_out(self._zk, position)
        diagnose_before(self.path, position)
        return position.is_free

    async def still_owns(self, ticket: Ticket) -> bool:
        """Return whether `ticket`, which owned when another task of this process passed it on, owns at this moment.

        Time may have passed since then, for example because the event loop was blocked.  If the session is not certain
        to be alive any more, ask the leader, and look whether the node is still there.  If not, or if the session is
        over, the ticket is given up.

        Cancellation:
            The ticket is given up, as for any error.
        """
        zk, node = self._zk, ticket.node
        names: Container[str] = (node.name,)
        try:
            while not zk.is_certain(node.session_id) and zk.session_id == node.session_id:
                await certify(zk)
                names, *_ = await self._known.look(zk, *self._rules.reads_slots())
        except zkwire.SessionExpiredError:
            ticket.give_up()
            return False
        except BaseException:
            ticket.give_up()
            raise
        if zk.session_id != node.session_id or node.name not in names:
            ticket.give_up()
            return False
        return True

    # -- a former process's ticket -----------------------------------------------------------------------------------

    def is_own(self, path: str) -> bool:
        """Return whether a ticket of a line like this one, of whichever client, may be at `path`."""
        name = path.rpartition("/")[2]
        is_ticket = re.fullmatch(f"_c_[0-9a-f-]{{36}}-{self._prefix}(-?[0-9]{{10}}|-[0-9]{{9}})", name)
        return is_ticket is not None and path == join_path(self.path, name)

    async def adopt(self, path: str, token: int) -> Ticket:
        """Return the ticket that a former process has created at `path` in this session, if it owns; see Lock.adopt.

        The other tickets of such a process are removed, also when this one is lost: no task waits for their turn, and
        this client's keepalives would keep them, so that its next ticket would wait for ever.
        """
        from recipes.line.contenders import look  # most programs never adopt

        zk = self._zk
        self._check_orphaned(path, token)
        try:
            while True:
                # Before the read: in a session that was resumed it commits a write, and a delete that the former
                # process has sent is carried out before that, or never.
                await certify(zk)
                node = result((await read_synced(zk, self.path, GetData(path)))[0])
                line = await look(zk, self.path)
                if node is None or node.stat.czxid != token:
                    self._remove_orphans(line)
                    raise LockLostError(path, _GONE)
                if node.stat.ephemeral_owner != zk.session_id:
                    # Only the client has given up the former session: the ensemble has not ended it yet.
                    if node.stat.ephemeral_owner == self._of_client.session_id:
                        raise LockLostError(path, _GONE)
                    owner, ours = describe_session(node.stat.ephemeral_owner), describe_session(zk.session_id)
                    raise RuntimeError(f"the lease {path} belongs to the session {owner}, and this client has {ours}")
                if parse(path.rpartition("/")[2], node.data, node.stat.version) is not None:
                    raise RuntimeError(f"the lease {path} is a TimedLock's, with a time limit: adopt takes none")
                before = list(takewhile(lambda each: each.path != path, line))
                if zk.is_certain(node.stat.ephemeral_owner) and len(before) < len(line):
                    break  # otherwise it may be gone by now
        except zkwire.SessionExpiredError:
            raise_unless_renewed(zk)
            raise LockLostError(path, _GONE) from None
        # A node before it that was created later got its number from another client, not from the server.
        if blocker := next((each.path for each in before if each.token < token), None):
            raise RuntimeError(f"the ticket {path} is no lease: it waits, and {blocker} comes before it")
        self._check_orphaned(path, token)  # another task may have taken it over meanwhile
        ticket = Ticket(TicketNode(path, path.rpartition("/")[2], token, zk.session_id), zk.guaranteed_delete(path))
        if is_own := ticket.is_own_data(node):
            self._of_client.adopted.add(path)
        self._remove_orphans(line)  # and this one, if the former process has lost it: others must not wait for it
        if not is_own:
            raise LockLostError(path, WRITTEN_OVER)
        return ticket

    def _check_orphaned(self, path: str, token: int) -> None:
        """Raise RuntimeError if this client has created the ticket itself, or has taken it over already."""
        if not self._is_orphan(path, token):
            raise RuntimeError(f"the lease {path} is, or was, held in this process: a lease is adopted once")

    def _is_orphan(self, path: str, token: int) -> bool:
        """Return whether no create of this client has made the ticket, unless its answer was lost just now."""
        return token < self._of_client.created and path not in self._of_client.adopted

    def _remove_orphans(self, contenders: Sequence[Any]) -> None:
        for each in contenders:
            if each.is_mine and self._is_orphan(each.path, each.token) and self.is_own(each.path):
                self._zk.guaranteed_delete(each.path).start()

    # -- entering ---------------------------------------------------------------------------------------------------

    async def _enter(self) -> WaitingTicket:
        """Create the node of a ticket and list the line; one round trip, also at a path that is new below a parent."""
        if self._zk.is_cut_off():
            await certify(self._zk)  # before a node is created that others wait for
        node, answers, is_new_line = await self._create()
        ticket = Ticket(node, self._zk.guaranteed_delete(node.path))
        try:
            children, *slots = await self._children_with(node.name, answers)
            waiting = WaitingTicket(self._zk, self._rules, ticket, children, *slots)
            if self._acl is not None and not is_new_line:  # a new one has the ACL that was asked for
                await warn_if_wider(self._zk, self.path, self._acl)
        except BaseException:
            ticket.give_up()
            raise
        return waiting

    async def _children_with(self, name: str, answers: list[Any]) -> list[Any]:
        """Return a list of the children that was read after `name` was created, and the number of slots.

        Args:
            answers: What was read in the write of the create, if anything.  If the answer to the create was lost,
                another server may have answered the reads, and may lag: the list is good if it shows `name`.
        """
        refused = [each for each in answers if isinstance(each, BaseException)]
        if answers and not (refused and any_transient(refused)):
            children = ranked(answers[0])
            if name in children:
                return [children, *answers[1:]]
        return await self._known.look(self._zk, *self._rules.reads_slots())

    async def _create(self) -> tuple[TicketNode, list[Any], bool]:
        """Create the node of a ticket, and read the line in the same write.

        Returns:
            The node; what each read has brought; and whether the line's node was created, too.

        Nodes above the ticket that are not known to exist are created in the same write.  The reads are left out if
        many tickets of this client list the line.
        """
        zk, known, loop = self._zk, self._known, asyncio.get_running_loop()
        unique, chain = zk.unique_id(), None
        if self._links:
            chain = HashChain(unique, self._links)
            unique = chain.id
        name = join_path(self.path, f"_c_{unique}-{self._prefix}")
        # Nothing if another ticket of this client is creating it: our request comes after, and fails if that one does.
        makes_parents = self._creates_at_once and not known.makers
        parents = self._parents.to_create(self.path, loop.time()) if makes_parents else []
        while True:
            acl = self._ticket_acl()
            operations: list[Create | GetChildren | GetChildrenAndStat | GetData] = [
                *map(self._create_parent, parents),
                Create(name, self.data, ephemeral=True, sequential=True, acl=acl, recover=True),
            ]
            lists = not known.is_busy
            if lists:
                operations += self._rules.reads_line()
            known.lists += lists
            known.makers += bool(parents)
            try:
                # The list goes after the create: a server executes the requests of a session in order, so the list
                # shows every ticket that comes before ours.  No later ticket can.
                answers = await zk.pipeline(operations)
            finally:
                known.lists -= lists
                known.makers -= bool(parents)
            count = len(parents)
            created = answers[count]
            if not isinstance(created, BaseException):
                path, stat = created
                is_new = bool(parents) and not isinstance(answers[count - 1], BaseException)
                self._parents.entered(self.path, loop.time(), is_ours=is_new)
                self._of_client.created = min(stat.czxid, self._of_client.created)
                node = TicketNode(path, path.rpartition("/")[2], stat.czxid, stat.ephemeral_owner, chain)
                return node, answers[count + 1 :], is_new
            if isinstance(created, zkwire.NoNodeError):
                parents = await self._parents_to_create(parents)
            elif isinstance(created, zkwire.InvalidACLError) and was_refused(zk, acl):
                self._own_acl = None
            elif not (isinstance(created, zkwire.ConnectionLostError) and not created.maybe_applied) and not (
                await pause_if_transient(created)
            ):
                if isinstance(created, zkwire.NodeExistsError):
                    created.hint = "the sequence numbers below this parent are used up: delete it and create it again"
                raise created

    def _ticket_acl(self) -> Sequence[ACL]:
        if self._acl is not None:
            return self._acl
        identities = self._zk.identity_count
        if self._own_acl is None or self._own_acl[0] != identities:
            self._own_acl = identities, own_acl(self._zk, self.path)
        return self._own_acl[1]

    def _create_parent(self, at: str) -> Create:
        is_container = at == self._container or at.startswith(f"{self._container}/")
        data = self._parent_data() if at == self.path else b""
        return Create(at, data, container=is_container, acl=self._parents_acl)

    async def _parents_to_create(self, parents: Sequence[str]) -> list[str]:
        """Return the nodes to create before the next try; the last one has created `parents` first, and was refused
        because the line's node is missing.
        """
        every = zkwire.ancestors(self.path)
        if len(parents) == len(every):
            # The parents cannot be created like this: the chroot is missing, or the client has no right to create them.
            # This creates them, or raises the reason.
            await make_container(self._zk, self.path, self._parents_acl)
        elif not parents:  # the server has deleted the empty container meanwhile
            self._parents.was_missing(self.path)
            if self._known.makers:
                return []
            return self._parents.to_create(self.path, asyncio.get_running_loop().time())
        return every
