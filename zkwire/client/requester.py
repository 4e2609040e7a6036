"""The layer between the verbs and the session: the chroot, cancellation, and several requests awaited together.

Callers use paths below the chroot, the server uses full paths.  This module adds the chroot to every request and
removes it from the path of every error.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from zkwire import paths
from zkwire.client.arguments import creation, server_path
from zkwire.client.operations import Create, GetChildren, GetChildrenAndStat, GetData, Operation, Sync, new_node
from zkwire.client.watch import Watch, WatchSet
from zkwire.errors import (
    ConnectionLostError,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    ProtocolError,
    ServerError,
    SessionError,
    ZooKeeperError,
)
from zkwire.session.observer import SessionState
from zkwire.session.request_queue import RequestTooLargeError
from zkwire.session.session import Session
from zkwire.session.transport import check_loop
from zkwire.wire.connection import REQUEST_HEADER_SIZE
from zkwire.wire.jute import Record
from zkwire.wire.multi import ErrorResult, MultiReadRequest, batched
from zkwire.wire.records import ACL
from zkwire.wire.requests import (
    ExistsRequest,
    GetChildren2Request,
    GetChildrenRequest,
    GetDataRequest,
    Request,
    SyncRequest,
)
from zkwire.wire.watch_table import Watcher, WatchKind

_MOST_UNANSWERED: Final = 10_000  # requests of `ask_each`, to bound memory
_FINAL_STATES: Final = (SessionState.EXPIRED, SessionState.AUTH_FAILED, SessionState.CLOSED)

_READS: Final = (GetData, GetChildren)
_ERRORS_WITH_PATH: Final = (ServerError, ConnectionLostError, ProtocolError, RequestTooLargeError)

# The bits of a UUID that are random, and those that are fixed.  RFC 4122: version 4, variant 2.
_RANDOM_BITS: Final = ~(0xF << 76 | 0x3 << 62)
_UUID_BITS: Final = 0x4 << 76 | 0x2 << 62

R = TypeVar("R", bound=Record)


class Requester:
    """A sender of one client's requests.

    Arguments: `session`, which carries the requests; `chroot`, the path that is put before the caller's paths; `rng`,
    for unique ids.
    """

    def __init__(self, session: Session, chroot: str, rng: random.Random) -> None:
        self._rng = rng
        self._session = session
        self._requests = session.requests
        self.chroot = chroot
        self.loop = session.requests.loop
        # Returns the server's path for the caller's path.  Raises: TypeError, ValueError.
        self.server_path: Callable[[str], str] = partial(server_path, chroot) if chroot else paths.validate

    async def ask(self, request: Request[R], watch: Watcher | None = None, kind: WatchKind = WatchKind.DATA) -> R:
        """Send `request` and return its reply.

        Arguments: `watch` and `kind`, the watch that the request sets and its kind.
        Raises: ServerError with the path as the caller wrote it; ConnectionLostError; SessionError.
        Cancellation: a request that was not yet written is not sent; an ephemeral node that it has created is removed.
        """
        try:
            future = self._requests.submit(request, watch, kind)
        except RequestTooLargeError as error:
            self._strip(error)
            raise
        try:
            return await future
        except asyncio.CancelledError:
            self._requests.abandon(future, request)
            raise
        except _ERRORS_WITH_PATH as error:
            self._strip(error)
            raise
        finally:
            # It has the error, whose traceback has this frame, which has it: a cycle, with all that the caller has.
            del future

    async def ask_and_watch(
        self, request: Request[R], path: str, into: WatchSet | None, kind: WatchKind
    ) -> tuple[R, Watch]:
        """Send a read that sets a watch, and return its reply and the watch; if it is refused, no watch is left.

        Arguments: `path`, the caller's path; `into`, a WatchSet for the watch; `kind`, the kind of the watch.
        Raises and cancellation: as `ask`.
        """
        watch = Watch(self._requests, request.subject or "", path, into)
        try:
            return await self.ask(request, watch.watcher, kind), watch
        except BaseException:
            watch.cancel()
            raise

    async def ask_all(self, requests: Sequence[Request[Any]]) -> list[Any]:
        """Send all requests in one write and return, for each, its reply, or its ServerError or ConnectionLostError.

        Raises: SessionError; ValueError when a request is too large, and then none is sent.
        Cancellation: for each request, as for `ask`.
        """
        return await self._send_all([(request, None, WatchKind.DATA) for request in requests])

    async def ask_each(self, requests: Iterable[Request[Any]], take: Callable[[Request[Any], Any], None]) -> None:
        """Send `requests`, and call `take` with each one and its reply, ServerError or ConnectionLostError, in order.

        Unlike `ask_all` it keeps no replies, so that they may be many and large, and leaves no more than 10,000
        unanswered.  If `take` raises an error, the requests that are left are abandoned.  Cancellation: as for `ask`.
        """
        pending: deque[tuple[asyncio.Future[Any], Request[Any]]] = deque()

        async def take_first() -> None:
            future, request = pending[0]
            with contextlib.suppress(ServerError, ConnectionLostError):
                await future
            pending.popleft()
            take(request, self._answer(future, None))

        try:
            for request in requests:
                if len(pending) == _MOST_UNANSWERED:
                    await take_first()
                pending.append((self._requests.submit(request, None, WatchKind.DATA), request))
            while pending:
                await take_first()
        except BaseException as error:
            self._strip(error)
            for future, request in pending:
                self._let_go(future, request)
            raise

    async def pipeline(self, operations: Sequence[Operation]) -> list[Any]:
        """Send all operations in one write and return their results; see Client.pipeline."""
        answers = await self._send_all([self._request_of(operation) for operation in operations])
        return [self._result_of(*each) for each in zip(operations, answers, strict=True)]

    async def get_many(self, reads: Sequence[GetData | GetChildren]) -> list[Any]:
        """Send all reads in one request, or in a few if they are too many, and return their results; see
        Client.get_many.
        """
        requests: list[Request[Any]] = []
        for read in reads:
            if not isinstance(read, _READS):
                raise TypeError(f"get_many takes GetData and GetChildren, not {read!r}")
            if read.into is not None:
                raise ValueError(f"{read.path}: get_many sets no watches; leave `into` out, or use pipeline")
            requests.append(self._request_of(read)[0])
        batches = batched(requests, self.body_limit)
        answers: list[Any] = []
        for batch, reply in zip(batches, await self.ask_all([MultiReadRequest(b) for b in batches]), strict=True):
            if isinstance(reply, ZooKeeperError):
                raise reply
            if len(reply.results) != len(batch):
                raise ProtocolError(f"{len(reply.results)} results for {len(batch)} reads")
            for request, result in zip(batch, reply.results, strict=True):
                failed = isinstance(result, ErrorResult)
                answers.append(self.refusal(result.err, request) if failed else result)
        return [self._result_of(*each) for each in zip(reads, answers, strict=True)]

    def refusal(self, code: int, request: Request[Any]) -> ServerError:
        """Return the error for an operation that the server refused inside of a transaction or multiRead."""
        path = paths.strip_chroot(self.chroot, request.subject or "")
        return request.refusal(code, self._session.server, path)

    async def create(self, request: Request[R], *, make_parents: bool, protected: bool, acl: Sequence[ACL]) -> R:
        """Send a create and return its reply.

        Args:
            make_parents: Whether to create missing parents, and to send it again.
            protected: Whether to send it again if it was lost and not carried out.
        """
        while True:
            try:
                return await self.ask(request)
            except NoNodeError:
                if not make_parents:
                    raise
                make_parents = False
            except ConnectionLostError as lost:
                if lost.maybe_applied or not protected:
                    raise
                continue
            parent, _ = paths.split(request.subject or "")
            await self.ensure(parent, acl=acl)

    def unique_id(self) -> str:
        """Return a new UUID; see Client.unique_id."""
        digits = f"{self._rng.getrandbits(128) & _RANDOM_BITS | _UUID_BITS:032x}"
        return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"

    def protection(self) -> str:
        """Return the beginning of a protected node's name, in Curator's form."""
        return f"_c_{self.unique_id()}-"

    async def ensure(self, path: str, *, container: bool = False, acl: Sequence[ACL]) -> None:
        """Create the node at the server's `path`, and every missing node above it, in one write."""
        check_loop(self.loop)  # here, because the root needs no request
        requests = [
            creation("", each, b"", container=container and each == path, acl=acl) for each in paths.ancestors(path)
        ]
        futures: list[asyncio.Future[Any]] = []
        try:
            futures.extend(map(self._requests.submit, requests))
            if futures:
                await asyncio.wait(futures)
        except BaseException as failure:
            self._strip(failure)
            # Nodes that exist by now stay: another client may have found one, and be about to create a child of it.
            self._requests.withdraw(futures)
            for future in futures:
                future.add_done_callback(_mark_retrieved)
            raise
        errors = [error for error in (future.exception() for future in futures) if error is not None]
        if not errors or errors[-1] is not futures[-1].exception() or isinstance(errors[-1], NodeExistsError):
            return
        if isinstance(errors[-1], NoAuthError):
            # The server checks the permission to create first: NoAuth says nothing about whether the node exists.
            try:
                await self.ask(ExistsRequest(path, False))
            except NoNodeError:
                pass
            else:
                return
        error = next(error for error in errors if not isinstance(error, NodeExistsError))
        self._strip(error)
        raise error

    def watch(self, path: str, into: WatchSet | None) -> Watch:
        """Return a new watch for the caller's `path`; give it to the request that sets it."""
        return Watch(self._requests, self.server_path(path), path, into)

    def give_up(self, path: str, watcher: Watcher) -> None:
        """Remove the watch of `watcher` from the server's `path`, unless another watcher of this client needs it."""
        self._requests.give_up(path, watcher)

    @property
    def body_limit(self) -> int:
        """The largest request that the servers accept, in bytes without its header."""
        return self._requests.request_limit - REQUEST_HEADER_SIZE

    @property
    def is_over(self) -> bool:
        """Whether the session has ended and no other will follow it."""
        return self._session.states.now in _FINAL_STATES

    def _request_of(self, operation: Operation) -> tuple[Request[Any], Watch | None, WatchKind]:
        """Return the request of an operation, and the watch that it sets."""
        if isinstance(operation, Create):
            request = creation(
                self.chroot,
                operation.path,
                operation.data,
                ephemeral=operation.ephemeral,
                sequential=operation.sequential,
                container=operation.container,
                ttl=operation.ttl,
                acl=operation.acl,
                with_stat=True,
                recover=operation.recover,
                protection=self.protection() if operation.protected else "",
            )
            return request, None, WatchKind.DATA
        if isinstance(operation, Sync):
            return SyncRequest(self.server_path(operation.path)), None, WatchKind.DATA
        if not isinstance(operation, (*_READS, GetChildrenAndStat)):
            raise TypeError(f"not an operation: {operation!r}")
        path = self.server_path(operation.path)
        watch = None if operation.into is None else self.watch(operation.path, operation.into)
        if isinstance(operation, GetData):
            return GetDataRequest(path, watch is not None), watch, WatchKind.DATA
        children = GetChildrenRequest if isinstance(operation, GetChildren) else GetChildren2Request
        return children(path, watch is not None), watch, WatchKind.CHILD

    async def _send_all(self, requests: Sequence[tuple[Request[Any], Watch | None, WatchKind]]) -> list[Any]:
        """Send all requests, each with the watch that it sets; see `ask_all`."""
        if not requests:
            check_loop(self.loop)  # otherwise `submit` does it
        futures: list[asyncio.Future[Any]] = []
        try:
            for request, watch, kind in requests:
                futures.append(self._requests.submit(request, watch, kind))
            # Answers come in the order of the requests: once the last one is there, so are usually all others, and this
            # task is woken once instead of once for each request.
            for future in reversed(futures):
                if not future.done():
                    try:
                        await future
                    except (ServerError, ConnectionLostError):
                        continue  # it is one of the answers
            return [self._answer(future, watch) for future, (_, watch, _) in zip(futures, requests, strict=True)]
        except BaseException as error:
            self._strip(error)
            for future, (request, _, _) in zip(futures, requests, strict=False):
                self._let_go(future, request)
            for _, watch, _ in requests:
                if watch is not None:
                    watch.cancel()
            raise

    def _let_go(self, future: asyncio.Future[Any], request: Request[Any]) -> None:
        """Cancel a request that no caller waits for any more; if it was answered, see to what it has made."""
        if not future.cancel() and not future.cancelled():
            _mark_retrieved(future)
            self._requests.abandon(future, request)

    def _answer(self, future: asyncio.Future[Any], watch: Watch | None) -> Any:
        """Return the reply or the error of one request; raise the error if it is the end of the session."""
        error = future.exception()
        if error is None:
            return future.result()
        if isinstance(error, SessionError):
            raise error
        if watch is not None:
            watch.cancel()
        self._strip(error)
        return error

    def _result_of(self, operation: Operation, answer: Any) -> Any:
        """Return what the operation's verb returns, or the error that it raises, given the answer."""
        if isinstance(answer, ZooKeeperError):
            return answer
        if isinstance(operation, GetData):
            return new_node((answer.data or b"", answer.stat))
        if isinstance(operation, GetChildren):
            return answer.children
        if isinstance(operation, GetChildrenAndStat):
            return answer.children, answer.stat
        return None if isinstance(operation, Sync) else (paths.strip_chroot(self.chroot, answer.path), answer.stat)

    def _strip(self, error: BaseException) -> None:
        """Replace the server's path in the error by the caller's."""
        if isinstance(error, _ERRORS_WITH_PATH) and error.path is not None:
            error.path = paths.strip_chroot(self.chroot, error.path)


def _mark_retrieved(future: asyncio.Future[Any]) -> None:
    """Read the future's error: else asyncio logs "exception was never retrieved" when the future is collected."""
    if not future.cancelled():
        future.exception()
