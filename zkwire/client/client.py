"""The client: one method for each of ZooKeeper's verbs.

Its classes check arguments, translate paths below the chroot, and give results their form.  They do not know how a
request travels or what a reconnect does: that is the session's job.  This module has what writes, and what locks need.
"""

import asyncio
import random
from collections.abc import Sequence
from typing import Any, Self, TypeVar, overload

from zkwire import paths
from zkwire.client.admin import Administration
from zkwire.client.operations import Create, Data, Operation
from zkwire.client.reading import Reading
from zkwire.client.requester import checked_data, checked_version, creation, without_frames
from zkwire.client.session_view import SessionView
from zkwire.client.transaction import Transaction
from zkwire.client.trees import Trees
from zkwire.errors import ConnectionLostError, NoNodeError, SessionError, ZooKeeperError
from zkwire.session import closing, keepalive
from zkwire.session.guaranteed_delete import GuaranteedDelete
from zkwire.session.session import Session
from zkwire.session.transport import check_loop
from zkwire.wire.records import ACL, OPEN_ACL, Stat, printed
from zkwire.wire.requests import DeleteRequest, SetDataRequest

T = TypeVar("T")


class Client(Reading, Trees, SessionView, Administration):
    """A ZooKeeper client; `zkwire.connect` makes it.

    Every verb is one request unless its docstring says otherwise.  Requests are sent in the order of the calls and
    answered in that order.  Verbs may be pipelined with asyncio.gather or tasks: those started in one turn of the event
    loop leave in one write.  While no server is connected, verbs wait for the next one: bound them with
    asyncio.timeout, or all of them with the `request_timeout` of `connect`.

    Attributes:
        on_uncertain: Takes callbacks for the moment from which the session may have expired, see OnUncertain.
        on_closed: Takes callbacks for the end of the session, after which no other follows, see OnClosed.
        on_closing: Takes callbacks for the moment at which `close` begins, see OnClosing.

    Raises:
        ServerError: From every verb, if the server refuses; the subclass says why.
        ConnectionLostError: From every verb, if the answer to a write is lost; reads are repeated on the next
            connection.
        NoAnswerError: From every verb, if a request is not answered within the `request_timeout` of `connect`.
        SessionExpiredError: From every verb, if the session is over.
        SessionClosedError: From every verb, if the client was closed.
        ValueError: From every verb, if an argument is bad, before anything is sent.
        TypeError: From every verb, if an argument is bad, before anything is sent.
        RuntimeError: From every verb, in another event loop or thread than the one that has connected the client.

    Cancellation:
        A request that was not yet written is not sent; the node of a cancelled create is removed if it is ephemeral or
        the create `protected` or `recover`.  A cancelled write of another kind may have happened.
    """

    def __new__(cls, session: object, *_: object) -> Self:
        if not isinstance(session, Session):
            raise TypeError("a Client is not made by its class: write `async with zkwire.connect(hosts) as zk`")
        return super().__new__(cls)

    def __init__(
        self, session: Session, chroot: str, rng: random.Random, others: int, limit: float | None = None
    ) -> None:
        super().__init__(session, chroot, rng, limit)
        self._unlimited = None if limit is None else type(self)(session, chroot, rng, others)
        self._other_identities = others  # than the session's credentials
        self.on_uncertain: keepalive.OnUncertain = session.lifetime.on_uncertain
        self.on_closed: keepalive.OnClosed = session.on_closed
        self.on_closing: closing.OnClosing = session.on_closing

    def __repr__(self) -> str:
        # What a person with a debugger wants to know, and no secrets.
        session = f"session {printed(self.session_id)} of {self.session_timeout:g} s"
        certain = f"certain for {self.certain_for(self.session_id):.1f} s"
        return f"<Client {self.state.name} {self.server}{self.chroot}, {session}, {certain}>"

    # -- writing ----------------------------------------------------------------------------------------------------

    async def create(
        self,
        path: str,
        data: Data = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        container: bool = False,
        ttl: float | None = None,
        acl: Sequence[ACL] = OPEN_ACL,
        make_parents: bool = False,
        protected: bool = False,
        recover: bool = False,
    ) -> str:
        """Create a node and return its path, which ends in the number that the server appends to a sequential node.

        Args:
            path: The node.
            data: The node's data; None is null, and is read as b"".
            ephemeral: The server deletes the node when this session ends.
            sequential: The server appends a number of ten digits, which only grows below one parent.
            container: The server deletes the node some time after its last child is gone.
            ttl: In seconds; the server deletes the node once it has no children and has not been set for so long (the
                server looks every minute, by default).
            acl: The node's access control list.
            make_parents: Create missing parents as persistent nodes with the same ACL.
            protected: Put ``_c_<unique id>-`` before the last name, so that no other node has its name.  It
                implies `recover`, and the create is sent again when it is known that it was not carried out: a lost
                connection raises no error.
            recover: When the answer is lost with the connection, find out on the next connection whether the node was
                created.  If it was, return as usual.
                For ephemeral nodes, and for nodes with a unique id in the name.

        Returns:
            The path.

        Raises:
            NodeExistsError: If there is a node at the path.
            NoNodeError: If the parent is missing.
            NoChildrenForEphemeralsError: If the parent is an ephemeral node.
            InvalidACLError: If the server cannot use the ACL.
            UnimplementedError: If the server is too old, or has TTL nodes switched off, which is the default.
            ConnectionLostError: If the answer was lost.  With `recover` only if the node was not created: then
                `maybe_applied` is False; or if that cannot be found out, for example because several creates of this
                client for the path were lost together and not all of them were carried out.  Then, and without
                `recover`, `maybe_applied` is True and the caller has to find out.  Of creates of one path that is not
                sequential, an ephemeral node is removed first, and `maybe_applied` is False once it is gone.
            ServerError: With `recover`, also if the server refuses to show whether the node was created; its hint says
                that it may have been.

        Cancellation:
            An ephemeral node that was created anyway is removed, and with `protected` or `recover` any node, also in
            the session after an expired one; if the client ends before, a warning is logged.  Without them a node of
            another kind stays: nothing would show that it is still the same one, and without the data of another
            client.  With `recover` the node stays if another create of the path has just raised with `maybe_applied`.
            Before an ephemeral node is deleted, its owner and its transaction are read.  In between, for one round
            trip, another client could put a node of its own in its place: that one is deleted.  This client cannot.

        Requests:
            create, createContainer (ZooKeeper 3.5.1), createTTL (3.5.3); with `protected` or `recover` create2 (3.5.0)
            in place of create, and after a lost answer sync, exists or getChildren; creates below one parent whose
            answers are lost together share one getChildren.
        """
        create = Create(path, data, ephemeral, sequential, container, ttl, acl, protected, recover)
        reply = await self._create(create, make_parents)
        return paths.strip_chroot(self._requester.chroot, reply.path)

    async def create_and_stat(
        self,
        path: str,
        data: Data = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        container: bool = False,
        ttl: float | None = None,
        acl: Sequence[ACL] = OPEN_ACL,
        make_parents: bool = False,
        protected: bool = False,
        recover: bool = False,
    ) -> tuple[str, Stat]:
        """Create a node and return its path and Stat, in one round trip; otherwise as `create`.

        Returns:
            The path and the Stat.

        Requests:
            create2 (ZooKeeper 3.5.0) in place of create.
        """
        create = Create(path, data, ephemeral, sequential, container, ttl, acl, protected, recover)
        reply = await self._create(create, make_parents, with_stat=True)
        return paths.strip_chroot(self._requester.chroot, reply.path), reply.stat

    async def _create(self, create: Create, make_parents: bool, *, with_stat: bool = False) -> Any:
        protection = self._requester.protection() if create.protected else ""
        request = creation(self._requester.chroot, create, with_stat=with_stat, protection=protection)
        while True:
            try:
                return await self._ask(request)
            except NoNodeError:
                if not make_parents:
                    raise
                make_parents = False
            except ConnectionLostError as lost:
                if lost.maybe_applied or not create.protected:
                    raise
                continue
            await without_frames(self._ensure(paths.split(request.path)[0], create.acl))

    async def set(self, path: str, data: Data, version: int = -1) -> Stat:
        """Replace the node's data and return the new Stat (request: setData).

        Args:
            path: The node.
            data: The new data; None is null, and is read as b"".
            version: The version that the node must have, -1 for any.

        Returns:
            The Stat after the change.

        Raises:
            NoNodeError: If there is no such node.
            BadVersionError: If the node has another version.
        """
        request = SetDataRequest(self._server_path(path), checked_data(data), checked_version(version))
        return (await self._ask(request)).stat

    async def delete(self, path: str, version: int = -1) -> None:
        """Delete the node (request: delete).

        Args:
            path: The node.
            version: The version that the node must have, -1 for any.

        Raises:
            NoNodeError: If there is no such node.
            BadVersionError: If the node has another version.
            NotEmptyError: If the node has children.
        """
        await self._ask(DeleteRequest(self._server_path(path), checked_version(version)))

    def discard(self, path: str, *, newest_zxid: int | None = None) -> asyncio.Future[None]:
        """Delete the node, with new attempts over lost connections, until it is known to be gone or the session ends.

        The first request is sent at once, in the order of the calls.

        Args:
            path: The node.
            newest_zxid: The latest transaction that can have created the node.  Give it for a path at which another
                client may create a node: when the answer to a delete is lost, a newer node is left alone.

        Returns:
            A future that is done when the node is gone, or after one or two seconds while no server answers; the
            attempts go on.  It need not be awaited, and never fails: a node that cannot be deleted is logged.
        """
        return self.guaranteed_delete(path, newest_zxid=newest_zxid).start()

    def guaranteed_delete(
        self, path: str, *, newest_zxid: int | None = None, session_id: int | None = None
    ) -> GuaranteedDelete:
        """Prepare a `discard` and return it: its `start()` then costs no more than the write.

        Args:
            path: The node.
            newest_zxid: As for `discard`.
            session_id: The only session in which the delete may be sent; None: the one at its start, or the next one.
                Give it for an ephemeral node at a path where another client may create one when the session is over.

        Returns:
            The prepared deletion.
        """
        if asyncio._get_running_loop() is not self._loop:
            check_loop(self._loop)
        removal = GuaranteedDelete(self._session.requests.cleanup.deletes, self._server_path(path), newest_zxid)
        removal.session_id = session_id
        return removal

    def transaction(self, *, session_id: int | None = None) -> Transaction:
        """Return a new transaction; ``async with zk.transaction() as tx`` commits at the end (request: multi).

        Args:
            session_id: The only session in which it may be carried out: when that session is over, the commit raises
                SessionExpiredError and nothing has happened, even if another session has followed.

        Returns:
            The transaction.
        """
        return Transaction(self._requester, session_id)

    @overload
    async def pipeline(self, operations: Sequence[Operation[T]]) -> list[T | ZooKeeperError]: ...

    @overload
    async def pipeline(self, operations: Sequence[Operation[Any]]) -> list[Any]: ...

    async def pipeline(self, operations: Sequence[Operation[Any]]) -> list[Any]:
        """Send the operations in one write and return the list of their results, once all are answered.

        The server executes them in their order.  Unlike those of a transaction, each one succeeds or fails by itself,
        and operations of other clients may come between.

        Args:
            operations: Create, GetData, GetChildren, GetChildrenAndStat and Sync operations.

        Returns:
            One result for each operation, in their order: what its verb returns (a watch is only in its WatchSet), or
            the ServerError, ConnectionLostError or NoAnswerError that its verb would raise.

        Raises:
            SessionError: If the session is over.

        Cancellation:
            For each operation, as for its verb.
        """
        asked = list(map(self._requester.request_of, operations))
        answers = await without_frames(self._requester.ask_all(asked, SessionError))
        return list(map(self._requester.result_of, operations, answers))

    # -- for locks --------------------------------------------------------------------------------------------------

    def unique_id(self) -> str:
        """Return a new UUID, made with this client's own source of randomness (`rng` of `connect`).

        Returns:
            The UUID as text.
        """
        return self._requester.unique_id()

    @property
    def identity_count(self) -> int:
        """How many identities this client shows to the servers: by `auth`, `add_auth` and `sasl`, and one for TLS.

        0: an ACL with the scheme "auth", such as CREATOR_ALL_ACL, is refused.  With TLS alone the server may refuse it
        as well: whether a certificate is shown, and gives an identity, is known there only.
        """
        return self._other_identities + len(self._session.credentials.kept)

    @property
    def session_id(self) -> int:
        """The session's id, 0 while there is no session; print it as hexadecimal, as the server does."""
        return self._session.key.id

    @property
    def certain_until(self) -> float:
        """The time on the event loop's clock until which the session cannot expire; minus infinity once it has expired.

        It comes from answers that passed through the ensemble's leader; see docs/waiting-line.md, "Certainty".
        """
        return self._session.lifetime.until

    def need_certainty(self, *, later: bool = False) -> None:
        """Have 0.4 of the session's timeout kept certain from now on, until `release_certainty` was called as often.

        For recipes: a lock needs it for as long as it is held, and while it waits and may become the owner by an event
        alone.  Meanwhile the client sends 6.7 syncs and writes in each session timeout.

        Args:
            later: Whether the lock only waits and is not the next one: then the session is kept so that it can be
                certain later, which costs what an idle client costs.
        """
        self._session.keepalive.need(later=later)

    def release_certainty(self, *, later: bool = False) -> None:
        """Undo one `need_certainty`.

        Args:
            later: The same argument.
        """
        self._session.keepalive.release(later=later)

    async def certify(self) -> None:
        """Return once the session is certain to live for a tenth of its timeout, at once if it is.

        Raises:
            SessionError: If the session is over.
            NotReadOnlyError: If the connected server has lost its quorum.
            ValueError: If the session was resumed without its `least_timeout`.

        Cancellation:
            Harmless.

        Requests:
            None if it is certain; one or two in a session that was kept, see `locks` of zkwire.connect.  If it was not,
            or was cut off for long, it takes until the leader has ended another session: about three ticks.
        """
        check_loop(self._loop)
        await self._requester.bounded("certify", self._session.keepalive.certify())

    def is_certain(self, session_id: int) -> bool:
        """Return whether `session_id` is the present session, and certain for long enough to acquire a lock.

        Args:
            session_id: The session to ask about.

        Returns:
            Whether it is certain.
        """
        return self._session.lifetime.is_certain(session_id)

    def is_cut_off(self) -> bool:
        """Return whether `certify` has to wait until the leader has ended another session, or soon will.

        A lock calls it before it makes its node, which would keep others waiting.

        Returns:
            Whether it has to wait.
        """
        certainty = self._session.lifetime.certainty
        return certainty is not None and certainty.has_run_out(self._loop.time())

    def certain_for(self, session_id: int) -> float:
        """Return how many seconds from now the session cannot expire.

        Args:
            session_id: The session to ask about.

        Returns:
            The seconds, 0 if it is another session than the present one.
        """
        return self._session.lifetime.certain_for(session_id)

    def machine_suspended(self) -> float:
        """Return for how many seconds this machine was suspended so far; only the difference of two calls counts.

        Returns:
            The seconds.
        """
        return keepalive.suspended()
