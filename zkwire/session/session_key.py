"""What a client shows to resume its session: the id and the password.

Knows which sessions can be resumed on another server, and how the handshake asks for them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from zkwire.wire.records import ConnectRequest, ConnectResponse

_NO_PASSWORD: Final = bytes(16)


@dataclass(slots=True)
class SessionKey:
    """The id of a session, 0 for none yet, and its password, which no repr shows.

    `is_resumable` says whether any server can resume it.  A session that a server without a quorum has granted exists
    on that server alone: no other one knows its id.
    """

    id: int = 0
    password: bytes = field(default=_NO_PASSWORD, repr=False)
    is_resumable: bool = False

    def hello(self, timeout: float, last_zxid: int, *, accepts_read_only: bool) -> ConnectRequest:
        """Return the handshake that asks for the session if it is resumable, otherwise for a new one.

        Arguments: `timeout`, the wanted session timeout in seconds; `last_zxid`, the newest that the client has seen: a
        server that has seen less turns it away; `accepts_read_only`, whether a server without a quorum will do.
        """
        key = self if self.is_resumable else SessionKey()
        return ConnectRequest(0, last_zxid, round(timeout * 1000), key.id, key.password, accepts_read_only)

    def granted(self, response: ConnectResponse, *, is_read_only: bool) -> None:
        """Take the session that a server has granted or resumed."""
        if not is_read_only:
            self.is_resumable = True
        elif response.session_id != self.id:  # a new session, made by a server without a quorum
            self.is_resumable = False
        self.id = response.session_id
        self.password = response.password or _NO_PASSWORD
