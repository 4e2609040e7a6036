"""Find the nodes of creates whose answers were lost, and delete the nodes that have no owner.

A create cannot be recalled once it was written.  Three cases are possible:

- The answer arrives.  If the caller was cancelled, a `GuaranteedDelete` deletes the node, if it is still the same.
- The connection is lost before the answer: perhaps there is a node, and for a sequential create its name is unknown.
  A search on the next connection looks for it.  A caller that still waits gets its node, or learns that the create was
  not carried out; without a caller, a `GuaranteedDelete` deletes what is found.
- The session ends: the server deletes its ephemeral nodes.  The search for other nodes, and their deletes, go on in the
  next session, if the client begins one.

Other callers of the same client, and other clients, may create nodes at the same paths meanwhile.  Those must stay, and
the code below is mostly about telling them apart: an ephemeral node by its owner and the transaction that created it,
another node by the unique id in its name.  A node with neither stays: another client may have written into it by now.

That a lost create is not carried out after the search is the session's affair: see late_writes.py.  This module sends
requests through the request queue and gets answers from it.  It knows nothing of connections, states or watches.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from zkwire import errors, paths
from zkwire.errors import ConnectionLostError, NoNodeError, ServerError, SessionError, ZooKeeperError, is_transient
from zkwire.session.guaranteed_delete import PAUSE, GuaranteedDelete, GuaranteedDeletes, Requests, ignored
from zkwire.wire import requests as wire
from zkwire.wire.certainty import AckLevel
from zkwire.wire.connection import Call
from zkwire.wire.multi import MultiReply, MultiRequest
from zkwire.wire.records import Stat

_log = logging.getLogger(__name__)

_NO_LIMIT: Final = 1 << 63  # later than any zxid
_NUMBER_LENGTHS: Final = (10, 11)  # of the numbers in names; 11 of those below -999999999
_HINT: Final = (
    "the answer to the create was lost, and the client cannot find out what became of it: it may have been carried out"
)


def traced_creates(request: wire.Request[Any]) -> list[wire.AnyCreate]:
    """Return the creates in `request`, itself or a transaction, whose nodes this module can tell from all others."""
    return [operation for operation in _operations(request) if _is_ephemeral(operation) or operation.is_recovered]


def is_write(request: wire.Request[Any]) -> bool:
    """Return whether `request` may change something; a transaction of checks, which is a proof, does not."""
    return any(each.ack_level is AckLevel.QUORUM for each in _operations(request))


def _operations(request: wire.Request[Any]) -> Sequence[Any]:
    return request.operations if isinstance(request, MultiRequest) else [request]


def _is_ephemeral(operation: object) -> bool:
    # The flags of a create with a TTL are an enumeration and not a set of bits: 5 has the bit 1, and means
    # "persistent, with a TTL".
    if not isinstance(operation, wire.AnyCreate) or isinstance(operation, wire.CreateTTLRequest):
        return False
    return bool(operation.flags & wire.CreateFlags.EPHEMERAL)


@dataclass(slots=True, eq=False, repr=False)
class LostCreate:
    """A create whose answer was lost with the connection.

    Args:
        request: The create, `call` itself or an operation of it.
        call: The call; the node is removed if its waiter is done when the node is found.
        session_id: The session that sent it.
        after_zxid: The newest zxid that answers had shown by then: a node that it created is newer.  -1: none had, and
            a former client of the session may have created a node of that name.
        before_zxid: The transaction of the first create that was sent after the loss and answered.
    """

    request: wire.AnyCreate
    call: Call
    session_id: int
    after_zxid: int
    before_zxid: int = _NO_LIMIT

    @property
    def has_caller(self) -> bool:
        """Whether a caller still waits for the result."""
        return self.call.waiter is not None and not self.call.waiter.done()

    @property
    def where(self) -> str:
        """What to ask for: the path, or for a sequential create the parent's path and "/", for its children."""
        path = self.request.path
        return path[: path.rindex("/") + 1] if self.request.flags & wire.CreateFlags.SEQUENTIAL else path

    def has_created(self, stat: Stat) -> bool:
        """Return whether this create may have made the node with `stat`, whose name fits."""
        owner = self.session_id if _is_ephemeral(self.request) else 0
        return stat.ephemeral_owner == owner and self.after_zxid < stat.czxid < self.before_zxid


class Cleanup:
    """The guaranteed deletes and searches that are under way in one session.

    Args:
        requests: The session's request queue.

    Attributes:
        deletes: The guaranteed deletes that are under way.
        searches: The searches that are under way, by `LostCreate.where`.
        search_tasks: Their tasks; the session waits at its end for those that `dismiss` has cancelled.
    """

    def __init__(self, requests: Requests) -> None:
        self.requests = requests
        self.deletes: GuaranteedDeletes = GuaranteedDeletes(requests)
        self.searches: dict[str, _Search] = {}
        self.search_tasks: set[asyncio.Task[None]] = set()
        # What is left to do after `dismiss`: nodes that outlive the session.
        self._lasting_creates: list[LostCreate] = []
        self._lasting_deletes: list[str] = []

    def remove_created(self, request: wire.Request[Any], reply: object, newest_zxid: int) -> None:
        """Delete the nodes that `reply`, the answer to `request`, says to have been created, if they can be told apart.

        Args:
            newest_zxid: The latest transaction that can have created them.
        """
        operations = _operations(request)
        results = reply.results if isinstance(reply, MultiReply) else [reply]
        for operation, result in zip(operations, results, strict=False):
            if isinstance(result, wire.CreateReply | wire.Create2Reply):
                if _is_ephemeral(operation):
                    GuaranteedDelete(self.deletes, result.path, newest_zxid, owner=self.requests.session_id).start()
                elif operation.is_recovered:  # no other node has that name
                    GuaranteedDelete(self.deletes, result.path, owner=None).start()

    def search(self, lost: Iterable[LostCreate]) -> None:
        """Find the nodes that `lost`, in the order of sending, have created, if any.

        A caller that waits gets the reply of its create, or ConnectionLostError if it was not carried out, or the
        refusal of the server to show the node.  Other nodes are deleted.

        Order: the first requests are submitted before this returns.  Nodes of creates that are sent later are spared,
        see `answered`.
        """
        found = {}
        for create in lost:
            if create.session_id == self.requests.session_id or not _is_ephemeral(create.request):
                where = create.where
                search = found[where] = self.searches.setdefault(where, _Search(self, where))
                search.add(create)
        for search in found.values():
            search.begin()

    def search_again(self) -> None:
        """Let the searches ask again on the next connection, where creates that are lost by now may show too."""
        for search in list(self.searches.values()):
            search.begin()

    def writing(self, request: wire.Request[Any]) -> None:
        """Change the mark of each path that `request`, which is written now, creates."""
        for operation in _operations(request):
            if isinstance(operation, wire.AnyCreate) and operation.path in self.deletes.creates:
                self.deletes.creates[operation.path] = object()

    def answered(self, request: wire.Request[Any], zxid: int) -> None:
        """Record that a caller has the answer to `request`, which the transaction `zxid` has carried out."""
        if traced_creates(request):
            for search in self.searches.values():
                search.spare_from(zxid)

    def dismiss(self, in_flight: Iterable[Call]) -> list[Call]:
        """Stop everything, because the session is over; return the calls of the lost creates.

        What calls that are still `in_flight` have made outlives the session likewise.
        """
        for task in self.search_tasks:
            task.cancel()
        lost = [create for search in self.searches.values() for creates in search.lost.values() for create in creates]
        made = [*lost, *(LostCreate(each, call, 0, 0) for call in in_flight for each in traced_creates(call.request))]
        self._lasting_creates = [create for create in made if not (create.has_caller or _is_ephemeral(create.request))]
        self._lasting_deletes = self.deletes.dismiss()
        self.searches.clear()
        return [create.call for create in lost]

    def resume(self) -> None:
        """Go on, in the next session, with the nodes that outlive the dismissed one: their names are unique."""
        for path in self._lasting_deletes:
            GuaranteedDelete(self.deletes, path, owner=None).start()
        self.search(self._lasting_creates)

    def give_up(self) -> None:
        """Log the nodes that outlive the dismissed session, because there will be no other one."""
        for path in (*self._lasting_deletes, *(create.request.path for create in self._lasting_creates)):
            _log.warning("the client ends before it could remove the node that a cancelled create of %s left", path)


class _Search:
    """The search for the nodes of lost creates of one path, or of all sequential ones below one node.

    Very many tasks may enter a line and lose the connection: a list of all names for each would take the server longer
    than the session lives.

    Args:
        where: The path, or the parent's path and "/"; see `LostCreate.where`.

    Attributes:
        lost: The creates by their paths, without a number, in the order of sending.
    """

    def __init__(self, cleanup: Cleanup, where: str) -> None:
        self.lost: dict[str, list[LostCreate]] = {}
        self._unlimited: list[LostCreate] = []  # those without a `before_zxid`
        self._cleanup = cleanup
        self._where = where
        self._is_numbered = where.endswith("/")
        self._first: Call | None = None
        self._calls: dict[asyncio.Future[Any], Call] = {}  # the latest requests
        self._task: asyncio.Task[None] | None = None

    def add(self, create: LostCreate) -> None:
        """Look for the node of `create`, too; to be followed by `begin`."""
        self.lost.setdefault(create.request.path, []).append(create)
        self._unlimited.append(create)

    def begin(self) -> None:
        """Ask from the beginning, unless the first request is still to be written.

        An answer that is on its way does not show what creates that were lost since have made.  If an answer was
        unreadable too often, the search ends: it would break every connection.
        """
        if self._first is not None and not self._first.xid:
            return
        if self._task is not None:
            self._task.cancel()
        for asked in self._calls:
            if asked.done() and not asked.cancelled() and isinstance(error := asked.exception(), errors.ProtocolError):
                self._settle({}, error)
                return
        try:
            first = self._ask_first()
        except SessionError:
            return  # the session is closing, and fails all callers at its end
        self._task = task = self._cleanup.requests.loop.create_task(self._run(first))
        self._cleanup.search_tasks.add(task)
        task.add_done_callback(self._cleanup.search_tasks.discard)

    def spare_from(self, zxid: int) -> None:
        """Spare the node that `zxid` has created, and all newer ones: its create was sent after the lost ones.

        A search that is refused for the moment asks again after creates that were submitted meanwhile.
        """
        for create in self._unlimited:
            create.before_zxid = zxid
        self._unlimited.clear()

    async def _run(self, asked: list[asyncio.Future[Any]]) -> None:
        """Find the nodes, and settle the creates."""
        try:
            self._settle(await self._find(asked), None)
        except SessionError:
            return  # as in `begin`
        except ZooKeeperError as error:
            self._settle({}, error)

    def _settle(self, answers: dict[str, Any], refusal: ZooKeeperError | None) -> None:
        """Settle the creates; `refusal` is the error because of which nothing was found out."""
        del self._cleanup.searches[self._where]
        nodes: dict[str, list[tuple[Stat, str]]] = {}
        unreadable: dict[str, ZooKeeperError] = {}
        for path, answer in answers.items():
            if isinstance(answer, wire.StatReply):
                nodes.setdefault(self._name(path), []).append((answer.stat, path))
        for name, creates in self.lost.items():
            self._settle_found(creates, sorted(nodes.get(name, []), key=lambda node: node[0].czxid))
        for path, answer in answers.items():
            name = self._name(path)
            if isinstance(answer, ZooKeeperError) and self.lost[name]:
                unreadable[name] = answer
                if paths.has_unique_id(name):  # it, or another one of them, is the create's
                    GuaranteedDelete(self._cleanup.deletes, path, owner=None).start()
        for name, creates in self.lost.items():
            for create in creates:
                self._not_found(create, unreadable.get(name, refusal))

    def _settle_found(self, creates: list[LostCreate], nodes: list[tuple[Stat, str]]) -> None:
        """Settle those of `creates`, all of one path, that `nodes` show to be carried out, or all if they are in doubt.

        If all were carried out, they were so in the order of sending.  If one was not, and could have made the node of
        another one, it is not known which of both has: the server may have refused either.
        """
        is_unique = paths.has_unique_id(creates[0].request.path)
        if creates[0].after_zxid < 0 and not is_unique and any(creates[0].has_created(stat) for stat, _ in nodes):
            while creates:
                self._not_found(creates.pop(0), "the node may be from before the session was resumed")
        made: dict[LostCreate, tuple[Stat, str]] = {}
        for stat, path in nodes:
            if create := next((create for create in creates if create.has_created(stat)), None):
                creates.remove(create)
                made[create] = stat, path
        has_rivals = any(create.has_created(stat) for create in creates for stat, _ in nodes)
        if has_rivals and any(create.has_caller for create in (*creates, *made)):
            self._fail_in_doubt([*creates, *made], *nodes[0])
            creates.clear()
        else:
            for create, (stat, path) in made.items():
                self._found(create, path, stat)

    def _fail_in_doubt(self, creates: Sequence[LostCreate], stat: Stat, path: str) -> None:
        """Fail `creates`; one of them has made the node at `path`, and it is not known which.

        An ephemeral node without a number is removed before: no caller has it, and it would keep every later create of
        the path away for as long as the session lives.
        """

        def fail(refusal: str | None) -> None:
            for create in creates:
                self._not_found(create, refusal)

        why, under_way = "several creates of it were lost, and not all carried out", self._cleanup.deletes.under_way
        if self._is_numbered or stat.ephemeral_owner != self._cleanup.requests.session_id:
            fail(why)
        else:
            delete = GuaranteedDelete(self._cleanup.deletes, path, stat.czxid, owner=stat.ephemeral_owner)
            delete.start().add_done_callback(lambda _: fail(why if delete in under_way else None))

    def _found(self, create: LostCreate, path: str, stat: Stat) -> None:
        if create.has_caller:
            create.call.reply = wire.Create2Reply(path, stat)
            self._cleanup.requests.recovered(create.call)
        else:
            owner = create.session_id if _is_ephemeral(create.request) else None
            GuaranteedDelete(self._cleanup.deletes, path, stat.czxid, owner=owner).start()

    def _not_found(self, create: LostCreate, refusal: ZooKeeperError | str | None) -> None:
        """Settle a create without a node; `refusal` says why there may be one."""
        request, path = create.request, create.request.path
        if not create.has_caller:
            if refusal is not None:
                _log.warning("cannot look for the node that a cancelled create of %s left: %s", path, refusal)
        elif isinstance(refusal, ServerError):
            refused = ServerError.from_code(
                refusal.code, refusal.path, operation=refusal.operation, server=refusal.server, hint=_HINT
            )
            self._cleanup.requests.fail_call(create.call, refused)
        else:
            outcome = "it was not carried out" if refusal is None else f"{_HINT}: {refusal}"
            why = f"the connection broke before the answer came; {outcome}"
            lost = ConnectionLostError(why, maybe_applied=refusal is not None, operation=request.operation, path=path)
            self._cleanup.requests.fail_call(create.call, lost)

    def _name(self, path: str) -> str:
        """Return the path of the creates that may have made the node at `path`, "" if there is none."""
        if not self._is_numbered:
            return path
        names = (path[:-length] for length in _NUMBER_LENGTHS if _is_number(path[-length:]))
        return next((name for name in names if name in self.lost), "")

    # -- asking -----------------------------------------------------------------------------------------------------

    def _ask_first(self) -> list[asyncio.Future[Any]]:
        """Send a sync, and ask for the node or for the names of all children.  Raises: SessionError."""
        # The new server may not have seen yet what the former server carried out: sync first.
        parent = self._where.rpartition("/")[0] or "/"
        look = wire.GetChildrenRequest(parent, False) if self._is_numbered else wire.ExistsRequest(self._where, False)
        asked = self._ask(wire.SyncRequest(parent), look)
        self._first = self._calls[asked[0]]
        return asked

    def _ask(self, *requests: wire.Request[Any]) -> list[asyncio.Future[Any]]:
        """Send the next requests, which take over how often an answer to the former ones was unreadable."""
        times_unreadable = max((call.times_unreadable for call in self._calls.values()), default=0)
        self._calls = {}
        for request in requests:
            future: asyncio.Future[Any] = ignored(self._cleanup.requests.loop.create_future())
            self._calls[future] = call = Call(request, future)
            call.times_unreadable = times_unreadable
            self._cleanup.requests.send(call)
        return list(self._calls)

    async def _find(self, asked: list[asyncio.Future[Any]]) -> dict[str, Any]:
        """Return, by their paths, the replies and errors for those nodes that the creates may have made."""
        while True:
            synced, answer = await _answers(asked)
            if not (is_transient(synced) or is_transient(answer)):
                break
            await asyncio.sleep(PAUSE)
            asked = self._ask_first()
        if isinstance(synced, ZooKeeperError):  # the answer after it may be out of date
            raise synced
        if isinstance(answer, NoNodeError):
            return {}
        if not self._is_numbered:
            return {self._where: answer}
        if isinstance(answer, ZooKeeperError):
            raise answer
        found: dict[str, Any] = {}
        missing = [path for path in (self._where + name for name in answer.children) if self._name(path)]
        while missing:  # all at once: one round trip for all candidates
            asked = self._ask(*(wire.ExistsRequest(path, False) for path in missing))
            found.update(zip(missing, await _answers(asked), strict=True))
            missing = [path for path in missing if is_transient(found[path])]
            if missing:
                await asyncio.sleep(PAUSE)
        return {path: answer for path, answer in found.items() if not isinstance(answer, NoNodeError)}


async def _answers(asked: list[asyncio.Future[Any]]) -> list[Any]:
    """Return the reply or the error of each request.

    Cancellation: requests that were not yet written are not sent.
    """
    try:
        await asyncio.wait(asked)
    finally:
        for future in asked:
            future.cancel()
    return [future.exception() or future.result() for future in asked]


def _is_number(text: str) -> bool:
    """Return whether `text` is a sequence number as the server writes it: see paths.sequence."""
    number = paths.sequence(f"-{text}")
    return number is not None and text == f"{number:010d}"
