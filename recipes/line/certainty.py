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

    It comes from answers that have passed through the ensemble's leader, and lasts for half to two thirds of the
    session timeout behind the last of them.  docs/waiting-line.md says why.
    """

    __slots__ = ("_session_id", "_zk")

    def __init__(self, zk: Client, session_id: int) -> None:
        self._zk = zk
        self._session_id = session_id

    def seconds_left(self) -> float:
        """Return how many seconds certainty lasts if no server answers any more; 0 when it has ended."""
        return self._zk.certain_for(self._session_id)

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

    def need(self, callback: Callable[[], None] | None = None) -> None:
        """Have the client ask the leader often enough that certainty does not end, until `release`.

        If it ends all the same, `callback` is called, once: `add_callback` adds it again.
        """
        self._zk.need_certainty()
        if callback is not None:
            self._zk.on_uncertain.add(callback)

    def release(self, callback: Callable[[], None] | None = None) -> None:
        """Undo one `need`, with the same argument."""
        self._zk.release_certainty()
        if callback is not None:
            self._zk.on_uncertain.discard(callback)

    def add_callback(self, callback: Callable[[], None]) -> None:
        """Have `callback`, which was called, called again at the next end of certainty."""
        self._zk.on_uncertain.add(callback)

    async def renew(self) -> None:
        """As `renew_certainty`."""
        await renew_certainty(self._zk)


async def renew_certainty(zk: Client) -> None:
    """Get an answer through the leader, so that the session is certain to be alive if it is.

    A lock that is acquired after a long idle time needs this: while no lock is held or waited for, nothing asks the
    leader.

    A read-only server has lost its quorum and cannot know whether the session lives, however often it is asked.  From
    such a server this returns only when the client has left it for another one.
    Raises: SessionError when the session is over.
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
