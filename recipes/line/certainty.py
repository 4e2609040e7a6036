"""Certainty: whether a ticket's session is certain to be alive at this moment.

A ticket of an expired session is gone, and the next one owns.  Therefore nothing is acquired or held without certainty.
Tickets and leases ask for it here, and nowhere else.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Final

from zkwire import Client, NotReadOnlyError, SessionState

ENDED: Final = "its session is over"
UNCERTAIN: Final = "the session may have expired: the ensemble's leader has not confirmed it for too long"


class Certainty:
    """The certainty that the session `session_id`, which created a ticket, is alive.

    It comes from answers that have passed through the ensemble's leader.  docs/waiting-line.md says why.
    """

    __slots__ = ("_session_id", "_zk")

    def __init__(self, zk: Client, session_id: int) -> None:
        self._zk = zk
        self._session_id = session_id

    def seconds_left(self) -> float:
        """Return how many seconds certainty lasts if no server answers any more; 0 when it has ended."""
        return self._zk.certain_for(self._session_id)

    def is_enough(self) -> bool:
        """Return whether certainty lasts for long enough to begin with: a lock is no use that is lost at once."""
        return self._zk.is_certain(self._session_id)

    @property
    def is_present_session(self) -> bool:
        """Whether the session is still the client's, although it may have expired without our knowing."""
        return self._zk.session_id == self._session_id

    def why_ended(self) -> str:
        """Return the reason for which nothing is left of the certainty.

        It is that the session is known to have ended, or to be ending because the client is being closed; or else that
        no server has answered for too long.
        """
        is_over = not self.is_present_session or self._zk.certain_until == float("-inf")
        return ENDED if is_over else UNCERTAIN

    def need(self, callback: Callable[[], None] | None = None, *, later: bool = False) -> None:
        """Have the client keep certainty up until `release`; see Client.need_certainty.

        If it ends anyway, `callback` is called, once: `add_callback` adds it again.
        """
        self._zk.need_certainty(later=later)
        if callback is not None:
            self._zk.on_uncertain.add(callback)

    def release(self, callback: Callable[[], None] | None = None, *, later: bool = False) -> None:
        """Undo one `need`, with the same arguments."""
        self._zk.release_certainty(later=later)
        if callback is not None:
            self._zk.on_uncertain.discard(callback)

    def add_callback(self, callback: Callable[[], None]) -> None:
        """Have `callback`, which was called, called again at the next end of certainty."""
        self._zk.on_uncertain.add(callback)

    async def renew(self) -> None:
        """As `renew_certainty`."""
        await renew_certainty(self._zk)


async def be_certain_soon(zk: Client) -> None:
    """If the session was cut off, make it certain before anything is made that others wait for; see Client.is_cut_off.

    Raises: as `renew_certainty`.
    """
    if zk.is_cut_off():
        await renew_certainty(zk)


async def renew_certainty(zk: Client) -> None:
    """Get an answer through the leader, so that the session is certain to be alive if it is.

    A lock that is acquired after the client was cut off needs this.

    A read-only server has lost its quorum and cannot know whether the session lives, however often it is asked.  From
    such a server this returns only when the client has left it for another one.
    Raises: SessionError when the session is over; ValueError when nothing can be certain in it.
    """
    if zk.state is not SessionState.READ_ONLY:
        with contextlib.suppress(NotReadOnlyError):  # the server has lost its quorum meanwhile
            await zk.certify()
        return
    states = zk.states()
    try:
        async for state in states:
            if state is not SessionState.READ_ONLY:
                return
    finally:
        states.close()
