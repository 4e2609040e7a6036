"""The wait for a start; the error of one that has failed: which servers were tried, what was wrong, what to do."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from zkwire.session.fitness import UnfitError, no_server
from zkwire.session.hosts import Address
from zkwire.session.reasons import reason_of

_ADVICE: Final = (
    "check that the servers run and have a quorum (the command `zkwire srvr`), and that this machine reaches their"
    " ports; give zkwire.connect a longer `within`, or None to wait for ever"
)

Failures = Sequence[tuple[Address, Exception | None]]  # of each server, None if it has not been tried to the end


async def are_done(awaited: Sequence[asyncio.Future[None]], within: float | None) -> bool:
    """Return True once all of `awaited` are done, False after `within` seconds; None: wait for ever.

    Raises: the error of the first one that has failed.
    """
    try:
        async with asyncio.timeout(within) as limit:
            for each in awaited:
                await asyncio.shield(each)
    except TimeoutError:
        if limit.expired():
            return False
        raise
    return True


def given_up(failures: Failures, *, is_one_look: bool) -> OSError | None:
    """Return the error of a client that gives up, None if it goes on.

    It gives up when it can use none of the servers, however often it tries, and at one look after one round.
    """
    final = [(address, failure) for address, failure in failures if isinstance(failure, UnfitError)]
    if len(final) == len(failures):
        return no_server(final)
    return not_in_time(failures, 0, None) if is_one_look and all(failure for _, failure in failures) else None


def not_in_time(failures: Failures, within: float, present: Address | None) -> TimeoutError:
    """Return the error of a client that got no session in time.

    Arguments: `within`, in seconds, 0 for one look; `present`, the server that is being tried.
    """
    limit = f"within {within:g} s" if within else "at one look"
    causes = "; ".join(f"{address}: {_cause(address, failure, present)}" for address, failure in failures)
    return TimeoutError(f"no session {limit}: {causes}; {_ADVICE}")


def _cause(address: Address, failure: Exception | None, present: Address | None) -> str:
    if failure is not None:
        return reason_of(failure)
    return "no answer yet" if address == present else "not tried yet"
