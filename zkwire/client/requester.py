"""The layer between the verbs and the session: checked arguments, the chroot, cancellation, several requests at once.

Callers use paths below the chroot, the server uses full paths.  This module adds the chroot to every request and
removes it from the path of every error.  A bad argument raises an error before anything is sent, and the message shows
the value, except where it may be a secret.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any, Final, Self, TypeAlias, TypeVar

from zkwire import errors, paths
from zkwire.client.operations import Create, Data, GetChildren, GetChildrenAndStat, GetData, Operation, Sync, new_node
from zkwire.client.watch import Watch, WatchSet
from zkwire.session.cleanup import is_write
from zkwire.session.request_queue import RequestQueue, RequestTooLargeError
from zkwire.session.session import Session
from zkwire.session.transport import check_loop
from zkwire.wire import requests
from zkwire.wire.connection import REQUEST_HEADER_SIZE, Call
from zkwire.wire.jute import Record
from zkwire.wire.multi import ErrorResult, MultiReply
from zkwire.wire.records import ACL, OPEN_ACL
from zkwire.wire.requests import Request
from zkwire.wire.watch_table import Watcher, WatchKind

_LOST: Final = (errors.ConnectionLostError, errors.NoAnswerError)
_ERRORS_WITH_PATH: Final = (errors.ServerError, *_LOST, errors.ProtocolError, RequestTooLargeError)
_RAISED: Final = (errors.SessionError, errors.NoAnswerError)

# Tuples of entries that passed the check lately, by their ids.  Neither they nor their entries can change.
_CHECKED: Final[dict[int, Sequence[ACL]]] = {id(OPEN_ACL): OPEN_ACL}
_MOST_CHECKED: Final = 100

_LONGEST_TTL: Final = 2**40 - 1  # milliseconds

# The bits of a UUID that are random, and those that are fixed.  RFC 4122: version 4, variant 2.
_RANDOM_BITS: Final = ~(0xF << 76 | 0x3 << 62)
_UUID_BITS: Final = 0x4 << 76 | 0x2 << 62

R = TypeVar("R", bound=Record)
T = TypeVar("T")
_Asked: TypeAlias = tuple[Request[Any], Watch | None, WatchKind]


class Requester:
    """A sender of one client's requests.

    Args:
        session: Carries the requests.
        chroot: The path that is put before the caller's paths.
        rng: For unique ids.
        limit: In seconds, the time limit for each request, None for none.

    Attributes:
        body_limit: The largest request that the servers accept, in bytes without its header.
    """

    def __init__(self, session: Session, chroot: str, rng: random.Random, limit: float | None = None) -> None:
        self._rng = rng
        self.limit = limit
        self.session = session
        self.requests: RequestQueue = session.requests
        self.body_limit: int = session.requests.request_limit - REQUEST_HEADER_SIZE
        self.submit: Callable[..., asyncio.Future[Any]] = self.requests.submit
        if limit is not None:
            self.submit = partial(_submit_within, self.requests, limit)
        self.chroot = chroot
        self.loop: asyncio.AbstractEventLoop = session.requests.loop
        # Returns the server's path for the caller's path.  Raises: TypeError, ValueError.
        self.server_path: Callable[[str], str] = partial(_server_path, chroot) if chroot else paths.validate

    async def ask(self, request: Request[R], watch: Watcher | None = None, kind: WatchKind = WatchKind.DATA) -> R:
        """Send `request`, which may set `watch`, and return its reply.

        Raises ServerError with the path as the caller wrote it, ConnectionLostError, NoAnswerError and SessionError.

        Cancellation:
            A request that was not yet written is not sent; an ephemeral node that it has created is removed.
        """
        try:
            future: asyncio.Future[R] = self.submit(request, watch, kind)
            try:
                return await future
            except asyncio.CancelledError:
                self.requests.abandon(future, request)
                raise
            finally:
                # It has the error, whose traceback has this frame, which has it: a cycle, with all that the caller has.
                del future
        except _ERRORS_WITH_PATH as error:
            self.strip(error)
            raise

    async def ask_and_watch(
        self, request: Request[Any], path: str, into: WatchSet | None, kind: WatchKind
    ) -> tuple[Any, Watch]:
        """Send a read that sets a watch, and return its reply and the watch; if it is refused, no watch is left.

        Unlike the other reads, exists sets its watch on an absent node as well: then the reply is None.

        Args:
            request: The read.
            path: The caller's path.
            into: A WatchSet for the watch.
            kind: The kind of the watch.
        """
        watch = Watch(self.requests, request.subject or "", path, into)
        try:
            return await self.ask(request, watch._watcher, kind), watch
        except BaseException as error:
            if kind is WatchKind.EXIST and isinstance(error, errors.NoNodeError):
                return None, watch
            watch.cancel()
            raise

    async def ask_all(self, asked: Sequence[_Asked], raised: Any = _RAISED) -> list[Any]:
        """Send requests, each with the watch that it sets, in one write, and return the list of what they got.

        This is for each one its reply or its error.  Raises an error of the types `raised`, and ValueError when a
        request is too large, and then none is sent.

        Cancellation:
            For each request, as for `ask`.
        """
        if not asked:
            check_loop(self.loop)  # otherwise `submit` does it
        futures: list[asyncio.Future[Any]] = []
        try:
            for request, watch, kind in asked:
                futures.append(self.submit(request, watch, kind))
            # Answers come in the order of the requests: once the last one is there, so are usually all others, and this
            # task is woken once instead of once for each request.
            for future in reversed(futures):
                if not future.done():
                    try:
                        await future
                    except (errors.ServerError, *_LOST, errors.ProtocolError):
                        continue  # it is one of the answers
            return [
                future.result() if (refusal := future.exception()) is None else self.failure(refusal, watch, raised)
                for future, (_, watch, _) in zip(futures, asked, strict=True)
            ]
        except BaseException as error:
            self.strip(error)
            for future, (request, _, _) in zip(futures, asked, strict=False):
                self.let_go(future, request)
            for _, watch, _ in asked:
                if watch is not None:
                    watch.cancel()
            raise

    def request_of(self, operation: Operation[Any]) -> _Asked:
        """Return the request of an operation, and the watch that it sets."""
        if isinstance(operation, Create):
            protection = self.protection() if operation.protected else ""
            return creation(self.chroot, operation, with_stat=True, protection=protection), None, WatchKind.DATA
        if isinstance(operation, Sync):
            return requests.SyncRequest(self.server_path(operation.path)), None, WatchKind.DATA
        if not isinstance(operation, GetData | GetChildren | GetChildrenAndStat):
            raise TypeError(f"not an operation: {operation!r}")
        path = self.server_path(operation.path)
        watch = None if operation.into is None else Watch(self.requests, path, operation.path, operation.into)
        if isinstance(operation, GetData):
            return requests.GetDataRequest(path, watch is not None), watch, WatchKind.DATA
        children = requests.GetChildrenRequest if isinstance(operation, GetChildren) else requests.GetChildren2Request
        return children(path, watch is not None), watch, WatchKind.CHILD

    def result_of(self, operation: Operation[Any], answer: Any) -> Any:
        """Return what the operation's verb returns, or the error that it raises, given the answer."""
        if isinstance(answer, errors.ZooKeeperError):
            return answer
        if isinstance(operation, GetData):
            return new_node((answer.data or b"", answer.stat))
        if isinstance(operation, GetChildren):
            return answer.children
        if isinstance(operation, Create):
            path = answer.path
            return paths.strip_chroot(self.chroot, path) if self.chroot else path, answer.stat
        return None if isinstance(operation, Sync) else (answer.children, answer.stat)

    def refusal(self, code: int, request: Request[Any]) -> errors.ServerError:
        """Return the error for an operation that the server refused inside of a transaction or multiRead."""
        error = request.refusal(code, self.requests.server)
        self.strip(error)
        return error

    def let_go(self, future: asyncio.Future[Any], request: Request[Any]) -> None:
        """Cancel a request that no caller waits for any more; if it was answered, see to what it has made."""
        # After `cancel`, asyncio does not log "exception was never retrieved" either, when the future is collected.
        if not future.cancel():
            self.requests.abandon(future, request)

    def failure(self, error: BaseException, watch: Watch | None = None, raised: Any = _RAISED) -> BaseException:
        """Return the error of one of several requests as its result; raise it if it is of the types `raised`."""
        if isinstance(error, raised):
            raise error
        if watch is not None:
            watch.cancel()
        self.strip(error)
        error.__traceback__ = None  # of an await, whose frame has the error: a cycle
        return error

    def strip(self, error: BaseException) -> None:
        """Replace the server's path in the error by the caller's."""
        if isinstance(error, _ERRORS_WITH_PATH) and error.path is not None:
            error.path = path = paths.strip_chroot(self.chroot, error.path)
            lacks_root = path == "/" or ("create" in error.operation and path.rfind("/") == 0)
            if lacks_root and self.chroot and isinstance(error, errors.NoNodeError):
                error.hint = f"the chroot {self.chroot} does not exist: create it with ensure_path('/')"

    def unique_id(self) -> str:
        """Return a new UUID; see Client.unique_id."""
        digits = f"{self._rng.getrandbits(128) & _RANDOM_BITS | _UUID_BITS:032x}"
        return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"

    def protection(self) -> str:
        """Return the beginning of a protected node's name, in Curator's form."""
        return f"_c_{self.unique_id()}-"

    async def bounded(self, operation: str, work: Awaitable[T], maybe_applied: Callable[[], bool] = bool) -> T:
        """Await `work`, which is more than one request, within the client's limit."""
        try:
            async with asyncio.timeout(self.limit):
                return await work
        except TimeoutError:
            why = f"not done within the request_timeout of {self.limit:g} s at {self.requests.server}"
            raise errors.NoAnswerError(why, maybe_applied=maybe_applied(), operation=operation) from None


async def without_frames(verb: Coroutine[Any, Any, T]) -> T:
    """Await `verb`, which gets many answers, return its result, and empty the traceback of its error.

    The traceback has the frames of `verb`, which have its answers, which has the error: a cycle.
    """
    try:
        return await verb
    except errors.ZooKeeperError as error:
        error.__traceback__ = None
        raise


def results_of(requester: Requester, reply: MultiReply, asked: Sequence[Request[Any]]) -> list[Any]:
    """Return the results of a transaction or multiRead of the requests `asked`; refusals become ServerErrors."""
    lacks_refusal = not reply.error and any(isinstance(result, ErrorResult) for result in reply.results)
    if len(reply.results) != len(asked) or lacks_refusal or not all(map(_fits, reply.results, asked)):
        raise errors.ProtocolError(f"{len(reply.results)} results for {len(asked)} operations, or others than theirs")
    return [
        requester.refusal(result.err, request) if isinstance(result, ErrorResult) else result
        for result, request in zip(reply.results, asked, strict=True)
    ]


def _fits(result: Record, request: Request[Any]) -> bool:
    """Return whether `result` is of a type that the server may send for `request`; see multi.py for creates."""
    creates = (requests.CreateReply, requests.Create2Reply)
    return isinstance(result, (ErrorResult, *(creates if request.reply in creates else (request.reply,))))


def _submit_within(
    queue: RequestQueue, limit: float, request: Request[R], watch: Watcher | None, kind: WatchKind
) -> asyncio.Future[R]:
    """Do as RequestQueue.submit; after `limit` seconds without an answer the caller counts as cancelled.

    On a connection they begin when the request is written: others of this client may have come first, or the event loop
    may have been blocked.
    """
    check_loop(queue.loop)
    future: asyncio.Future[R] = queue.loop.create_future()
    call = Call(request, future, watch, kind)
    queue.send(call)
    begins_when_sent = queue.link is not None
    timer: asyncio.TimerHandle

    def check() -> None:
        nonlocal begins_when_sent, timer
        rest = call.sent_at + limit - queue.loop.time()
        if queue.link and not call.xid:
            begins_when_sent, rest = True, limit
        elif begins_when_sent:
            begins_when_sent = False  # a read that is sent again and again has an end
        else:
            late = "has not answered" if queue.link else "is not connected"
            hint = "; it counts as cancelled: it may yet be carried out, and what it creates be removed"
            sent = call.xid != 0 and is_write(request)
            why = f"no answer within the request_timeout of {limit:g} s: {queue.server} {late}{hint * sent}"
            error = errors.NoAnswerError(why, maybe_applied=sent, operation=request.operation, path=request.subject)
            queue.fail_call(call, error)
            return
        timer = queue.loop.call_later(rest, check)

    timer = queue.loop.call_later(limit, check)
    future.add_done_callback(lambda _: timer.cancel())
    return future


class Verbs:
    """The base of the classes of which Client consists: what all of them use."""

    _unlimited: Any = None

    def __init__(self, session: Session, chroot: str, rng: random.Random, limit: float | None) -> None:
        self._session = session
        self._loop = asyncio.get_running_loop()
        self._requester = Requester(session, chroot, rng, limit)
        self._ask = self._requester.ask
        self._server_path = self._requester.server_path

    @property
    def unlimited(self) -> Self:
        """This client without the `request_timeout` of `connect`, as streams and recipes use it."""
        return self._unlimited or self


# -- the arguments of callers ------------------------------------------------------------------------------------------


def _server_path(chroot: str, path: str) -> str:
    """Return the server's path for the caller's `path` below `chroot`."""
    return paths.add_chroot(chroot, paths.validate(path))


def creation(chroot: str, create: Create, *, with_stat: bool = False, protection: str = "") -> requests.AnyCreate:
    """Return the request that creates a node below `chroot`.

    Args:
        chroot: The path that is put before the caller's path.
        create: What to create.
        with_stat: Whether the answer must have the node's Stat.
        protection: What to put before the last name, with a unique id; it implies that the create is recovered.
    """
    path, data, acl, sequential = create.path, create.data, create.acl, create.sequential
    paths.validate(path, sequential=sequential)
    recover = bool(protection) or create.recover
    if protection:
        parent, _, name = path.rpartition("/")
        path = f"{parent}/{protection}{name}"
    elif recover and not create.ephemeral and not paths.has_unique_id(path):
        raise ValueError(f"{path}: to recover a node that is not ephemeral, put a unique id into its name: `protected`")
    full_path = path
    if chroot:
        # A sequential node at "/" gets a name that is only a number.  With the chroot /app it must become
        # /app/0000000001, below the chroot: without the slash the server would create /app0000000001 beside it.
        full_path = f"{chroot}/" if path == "/" and sequential else paths.add_chroot(chroot, path)
    # Nearly always it was checked.  `_CHECKED` keeps the tuple, and so no other object gets its id.
    entries = acl if id(acl) in _CHECKED else checked_acl(acl)
    content = data if type(data) is bytes else checked_data(data)
    if create.container:
        if create.ephemeral or sequential:
            raise ValueError(f"{path}: a container cannot be ephemeral or sequential")
        if create.ttl is not None:
            raise ValueError(f"{path}: a container cannot have a ttl: it is deleted after its last child")
        create_container = requests.RecoveredCreateContainerRequest if recover else requests.CreateContainerRequest
        return create_container(full_path, content, entries, requests.CreateFlags.CONTAINER)
    if create.ttl is not None:
        if create.ephemeral:
            raise ValueError(f"{path}: an ephemeral node cannot have a ttl: it is deleted with its session")
        wanted = f"a number of seconds, at least 0.001 and at most {_LONGEST_TTL / 1000}"
        check_number("ttl", create.ttl, int | float, wanted, least=0.001, most=_LONGEST_TTL / 1000)
        ttl_flags = requests.TTLFlags.SEQUENTIAL if sequential else requests.TTLFlags.PERSISTENT
        create_ttl = requests.RecoveredCreateTTLRequest if recover else requests.CreateTTLRequest
        return create_ttl(full_path, content, entries, ttl_flags, round(create.ttl * 1000))
    flags = requests.CreateFlags.EPHEMERAL * create.ephemeral | requests.CreateFlags.SEQUENTIAL * sequential
    if recover:
        return requests.RecoveredCreate2Request(full_path, content, entries, flags)
    return (requests.Create2Request if with_stat else requests.CreateRequest)(full_path, content, entries, flags)


def checked_acl(acl: Sequence[ACL]) -> Sequence[ACL]:
    """Return the entries of `acl` if they can be encoded."""
    wanted = "acl must be a sequence of zkwire.ACL, each of an int and two str"
    # The errors do not show the values: an id may contain the hash of a password.
    if not isinstance(acl, Iterable):
        raise TypeError(f"{wanted}, not {type(acl).__name__}")
    entries = list(acl)
    for number, entry in enumerate(entries):
        if not isinstance(entry, ACL):
            raise TypeError(f"{wanted}, and number {number} is {type(entry).__name__}")
        kinds = [type(part) for part in (entry.perms, entry.scheme, entry.id)]
        if not issubclass(kinds[0], int) or kinds[1:] != [str, str]:
            raise TypeError(f"{wanted}, and number {number} is of {', '.join(kind.__name__ for kind in kinds)}")
        try:
            entry.encode()
        except ValueError as error:
            raise ValueError(f"acl cannot be sent, because of number {number}: {error}") from None
    if type(acl) is tuple:
        if len(_CHECKED) >= _MOST_CHECKED:
            _CHECKED.clear()
        _CHECKED[id(acl)] = acl
    return entries


def checked_data(data: Data) -> bytes | None:
    """Return `data` as immutable bytes."""
    if data is None or isinstance(data, bytes):
        return data
    if isinstance(data, bytearray | memoryview):
        return bytes(data)
    raise TypeError(f"data must be bytes, not {type(data).__name__}: encode it")


def check_kind(name: str, value: object, kind: Any, wanted: str) -> None:
    """Raise TypeError if `value` is not of the type `kind`, or is a bool."""
    if isinstance(value, bool) or not isinstance(value, kind):
        raise TypeError(f"{name} must be {wanted}, not {type(value).__name__}")  # it may be a misplaced password


def check_number(name: str, value: Any, kind: Any, wanted: str, *, least: float, most: float = float("inf")) -> None:
    """Do the same as `check_kind`; raise ValueError if `value` is out of bounds."""
    check_kind(name, value, kind, wanted)
    if not least <= value <= most:  # written so that a NaN is refused too
        raise ValueError(f"{name} must be {wanted}, not {value!r}")


def checked_version(version: int) -> int:
    """Return `version` if it fits in 32 bits."""
    if not isinstance(version, int):
        raise TypeError(f"version must be an int, not {version!r}")
    if not -(2**31) <= version < 2**31:
        raise ValueError(f"version must fit in 32 bits, and {version} does not")
    return version
