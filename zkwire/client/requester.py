"""What stands between a verb and the session: chroot in and out, cancellation, several requests waited for as one.

Requests come from here with the server's paths, and errors leave with the caller's.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any, Final, TypeVar

from zkwire import paths
from zkwire.client.arguments import creation, server_path, with_stat
from zkwire.client.operations import Create, GetChildren, GetData, Node, Operation, Sync
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
from zkwire.session.request_queue import REQUEST_LIMIT
from zkwire.session.session import Session
from zkwire.session.states import SessionState
from zkwire.wire.connection import Watcher
from zkwire.wire.jute import Record
from zkwire.wire.multi import ErrorResult, MultiReadRequest, batched
from zkwire.wire.records import ACL
from zkwire.wire.requests import ExistsRequest, GetChildrenRequest, GetDataRequest, Request, SyncRequest
from zkwire.wire.watch_table import WatchKind

_OVER: Final = (SessionState.EXPIRED, SessionState.AUTH_FAILED, SessionState.CLOSED)

R = TypeVar("R", bound=Record)

HEADER_SIZE: Final = 8  # of a request, in bytes


class Requester:
    """Sends the requests of one client.

    Arguments: `session`, whose they are; `chroot`, below which the caller lives.
    """

    def __init__(self, session: Session, chroot: str) -> None:
        self._session = session
        self._requests = session.requests
        self.chroot = chroot

    async def ask(self, request: Request[R], watch: Watcher | None = None, kind: WatchKind = WatchKind.DATA) -> R:
        """Send `request` and return its reply.

        Arguments: `watch`, what the request is to set, and its `kind`.
        Raises: ServerError with the path as the caller wrote it, and whatever ends a session's request.
        Cancellation: what was not yet written is not sent; what a create made is removed.
        """
        future = self._requests.submit(request, watch, kind)
        try:
            return await future
        except asyncio.CancelledError:
            self._requests.abandon(future)
            raise
        except ServerError as error:
            self._strip(error)
            raise

    async def ask_all(self, requests: Sequence[Request[Any]]) -> list[Any]:
        """Send all in one write and return for each its reply, or the ServerError or ConnectionLostError it met.

        Raises: SessionError; ValueError when one is too large, with nothing sent.
        Cancellation: of each as of `ask`.
        """
        return await self._all([(request, None, WatchKind.DATA) for request in requests])

    async def pipeline(self, operations: Sequence[Operation]) -> list[Any]:
        """Send all in one write and return what each gave; see Client.pipeline."""
        answers = await self._all([self._asked(operation) for operation in operations])
        return [self._given(*each) for each in zip(operations, answers, strict=True)]

    async def get_many(self, reads: Sequence[GetData | GetChildren]) -> list[Any]:
        """Read all in one request, or in as few as they fit in; see Client.get_many."""
        asked: list[Request[Any]] = []
        for read in reads:
            if not isinstance(read, GetData | GetChildren):
                raise TypeError(f"get_many takes GetData and GetChildren, not {read!r}")
            if read.into is not None:
                raise ValueError(f"{read.path}: get_many sets no watches, so leave `into` out, or use pipeline")
            asked.append(self._asked(read)[0])
        batches = batched(asked, REQUEST_LIMIT - HEADER_SIZE)
        given: list[Any] = []
        for batch, answer in zip(batches, await self.ask_all([MultiReadRequest(b) for b in batches]), strict=True):
            if isinstance(answer, ZooKeeperError):
                raise answer
            if len(answer.results) != len(batch):
                raise ProtocolError(f"{len(answer.results)} results for {len(batch)} reads")
            for request, result in zip(batch, answer.results, strict=True):
                failed = isinstance(result, ErrorResult)
                given.append(self.refusal(result.err, request) if failed else result)
        return [self._given(*each) for each in zip(reads, given, strict=True)]

    def refusal(self, code: int, request: Request[Any]) -> ServerError:
        """Return the error for an operation that was refused inside of a larger request."""
        path = paths.strip_chroot(self.chroot, request.subject or "")
        return request.refusal(code, self._session.server, path)

    async def create(self, request: Request[R], make_parents: bool, acl: Sequence[ACL]) -> R:
        """Send a create; with `make_parents`, make those that are missing and send it again."""
        try:
            return await self.ask(request)
        except NoNodeError:
            if not make_parents:
                raise
        parent, _ = paths.split(request.subject or "")
        await self.ensure(parent, acl=acl)
        return await self.ask(request)

    async def ensure(self, where: str, *, container: bool = False, acl: Sequence[ACL]) -> None:
        """Make the node at the server's path `where`, and every missing one above it, in one write."""
        requests = [
            creation("", at, b"", container=container and at == where, acl=acl) for at in paths.ancestors(where)
        ]
        futures: list[asyncio.Future[Any]] = []
        try:
            futures.extend(map(self._requests.submit, requests))
            if futures:
                await asyncio.wait(futures)
        except BaseException:
            # What is made already stays: somebody else may have found it, and be about to create something below.
            self._requests.withdraw(futures)
            for future in futures:
                future.add_done_callback(_retrieve)
            raise
        errors = [error for error in (future.exception() for future in futures) if error is not None]
        if not errors or errors[-1] is not futures[-1].exception() or isinstance(errors[-1], NodeExistsError):
            return
        if isinstance(errors[-1], NoAuthError):
            # Where we may not create, the server says so before it says that the node is there.
            try:
                await self.ask(ExistsRequest(where, False))
            except NoNodeError:
                pass
            else:
                return
        error = next(error for error in errors if not isinstance(error, NodeExistsError))
        self._strip(error)
        raise error

    def server_path(self, path: str) -> str:
        """Return the server's name of the caller's `path`.  Raises: TypeError, ValueError."""
        return server_path(self.chroot, path)

    def watch(self, path: str, into: WatchSet | None) -> Watch:
        """Return a watch for the caller's `path` that the next request is to set."""
        return Watch(self._requests, self.server_path(path), path, into)

    def give_up(self, where: str, watcher: Watcher) -> None:
        """Have the watch of `watcher` removed from the server's path `where`, unless others here need it."""
        self._requests.give_up(where, watcher)

    @property
    def is_over(self) -> bool:
        """Whether the session has ended and no other will follow it."""
        return self._session.states.now in _OVER

    # -- within -----------------------------------------------------------------------------------------------------

    def _asked(self, operation: Operation) -> tuple[Request[Any], Watch | None, WatchKind]:
        """Return the request of an operation, and the watch that it is to set."""
        if isinstance(operation, Create):
            o = operation
            made = creation(
                self.chroot,
                o.path,
                o.data,
                ephemeral=o.ephemeral,
                sequential=o.sequential,
                container=o.container,
                ttl=o.ttl,
                acl=o.acl,
            )
            return with_stat(made), None, WatchKind.DATA
        if not isinstance(operation, Sync | GetData | GetChildren):
            raise TypeError(f"not an operation: {operation!r}")
        path = self.server_path(operation.path)
        if isinstance(operation, Sync):
            return SyncRequest(path), None, WatchKind.DATA
        watch = None if operation.into is None else self.watch(operation.path, operation.into)
        if isinstance(operation, GetData):
            return GetDataRequest(path, watch is not None), watch, WatchKind.DATA
        return GetChildrenRequest(path, watch is not None), watch, WatchKind.CHILD

    async def _all(self, asked: Sequence[tuple[Request[Any], Watch | None, WatchKind]]) -> list[Any]:
        futures: list[asyncio.Future[Any]] = []
        try:
            for request, watch, kind in asked:
                futures.append(self._requests.submit(request, watch, kind))
            for future in reversed(futures):  # answers come in order: behind the last one there is nothing to wait for
                if not future.done():
                    with contextlib.suppress(ServerError, ConnectionLostError):
                        await future
            return [self._answer(future, watch) for future, (_, watch, _) in zip(futures, asked, strict=True)]
        except BaseException:
            for future in futures:
                if not future.cancel() and not future.cancelled():
                    future.exception()  # else it would complain that nobody has looked at it
                    self._requests.abandon(future)
            for _, watch, _ in asked:
                if watch is not None:
                    watch.cancel()
            raise

    def _answer(self, future: asyncio.Future[Any], watch: Watch | None) -> Any:
        error = future.exception()
        if error is None:
            return future.result()
        if isinstance(error, SessionError):
            raise error
        if watch is not None:
            watch.cancel()
        self._strip(error)
        return error

    def _given(self, operation: Operation, answer: Any) -> Any:
        """Return what the verb of an operation would, given its answer."""
        if isinstance(answer, ZooKeeperError):
            return answer
        if isinstance(operation, GetData):
            return Node(answer.data or b"", answer.stat)
        if isinstance(operation, GetChildren):
            return answer.children
        return None if isinstance(operation, Sync) else (paths.strip_chroot(self.chroot, answer.path), answer.stat)

    def _strip(self, error: BaseException) -> None:
        """Make the error name the path as the caller wrote it."""
        if isinstance(error, ServerError) and error.path is not None:
            error.path = paths.strip_chroot(self.chroot, error.path)


def _retrieve(future: asyncio.Future[Any]) -> None:
    """A future whose error nobody looks at would complain."""
    if not future.cancelled():
        future.exception()
