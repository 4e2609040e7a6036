"""The faults that a test can inject, with the same verbs for both servers.

The in-memory server (`zkwire.testing.Server`) and a `Proxy` in front of a real server both satisfy `FaultyServer`.  A
test that keeps to it can be written once and run against either.
"""

from __future__ import annotations

import re
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Protocol, Self

PathPattern = str | re.Pattern[str] | None


class Fault(Protocol):
    """A fault that is active until `end`, or until the end of its `with` or `async with` block."""

    @property
    def hits(self) -> int:
        """How often the fault has struck."""

    @property
    def is_over(self) -> bool:
        """Whether the fault has ended."""

    async def until_hit(self, hits: int = 1) -> None:
        """Wait until the fault has struck `hits` times in all."""

    def end(self) -> None:
        """Let the fault strike no more; nothing happens when it is over already."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Hold(Fault, Protocol):
    """A fault that keeps replies back."""

    def release(self) -> None:
        """Send what was kept back, in its order, and keep nothing back any more."""


class FaultyServer(Protocol):
    """A server whose connections a test can disturb.

    Arguments that choose requests: `operation`, a name in ZooKeeper's terms ("create" means every kind of create,
    "getChildren" and "setWatches" both of theirs), or an opcode for exactly that request, or None for every request but
    pings; `path`, the node that the request names, as a str or as a pattern for the whole path; `session`, a session
    id; `nth`, the first fitting request that is hit, counted from 1; `times`, how many are hit, None for all.
    """

    @property
    def hosts(self) -> str:
        """The connect string."""

    def drop_before(
        self,
        operation: str | int | None = None,
        *,
        path: PathPattern = None,
        session: int | None = None,
        nth: int = 1,
        times: int | None = 1,
    ) -> Fault:
        """Drop the connection when a chosen request arrives; the request is not carried out."""

    def drop_after(
        self,
        operation: str | int | None = None,
        *,
        path: PathPattern = None,
        session: int | None = None,
        nth: int = 1,
        times: int | None = 1,
    ) -> Fault:
        """Carry out a chosen request and drop its connection in place of the reply."""

    def hold_replies(
        self,
        operation: str | int | None = None,
        *,
        path: PathPattern = None,
        session: int | None = None,
        nth: int = 1,
        times: int | None = None,
    ) -> Hold:
        """Keep back the replies to the chosen requests, and all that follows them on the same connection.

        When no argument but `session` is given, everything that goes out from now on is kept back.
        """

    def delay_replies(
        self,
        seconds: float,
        operation: str | int | None = None,
        *,
        path: PathPattern = None,
        session: int | None = None,
        nth: int = 1,
        times: int | None = None,
    ) -> Fault:
        """Keep the same replies back for `seconds`."""

    def refuse_connections(self) -> Fault:
        """Close every new connection at once; open connections stay."""

    def drop(self, session_id: int | None = None) -> int:
        """Drop the connection of a session, or every connection, now; return how many."""

    def pause(self) -> None:
        """Keep connections open, but read and send nothing until `resume`."""

    def resume(self) -> None:
        """Go on after `pause`."""

    def paused(self) -> AbstractContextManager[None]:
        """Be paused in a `with` block."""

    def end_faults(self) -> None:
        """End every active fault, and a pause."""
