"""Whether a connection makes progress with its oldest request, although other bytes arrive.  Pure."""

from __future__ import annotations

from typing import Final

_GROWTH: Final = 4096  # bytes by which a frame must grow within a session timeout


class Progress:
    """The case of a server that sends events all the time and never answers.

    The time that is allowed leaves room for many events before the reply.  It begins anew while a frame is growing: it
    may be the reply, and a large reply on a slow link takes its time.  A few bytes now and then are no growth.  The
    count starts at the first look that finds the call to be the oldest, not when it becomes so, which keeps the
    receiving of replies free of bookkeeping.
    """

    def __init__(self, now: float) -> None:
        self._oldest: object | None = None
        self._held = 0  # the size of the unfinished frame at `_since`
        self._since = now

    def restart(self, now: float) -> None:
        """Count from `now`: a large reply is being decoded."""
        self._since = now

    def is_stuck(self, oldest: object | None, held: int, now: float, timeout: float) -> bool:
        """Return whether `oldest`, the oldest unanswered call, has made no progress for `timeout` seconds.

        Arguments: `held`, the size of the unfinished frame.
        """
        if oldest is not self._oldest or held >= self._held + _GROWTH:
            self._oldest, self._since, self._held = oldest, now, held
        else:
            self._held = min(self._held, held)  # less is another frame
        return oldest is not None and now >= self._since + timeout
