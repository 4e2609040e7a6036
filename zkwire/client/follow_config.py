"""Follows the ensemble's own list of its servers, which a reconfiguration changes."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from zkwire.client.watch import Watch
from zkwire.errors import ServerError, SessionClosedError, SessionError
from zkwire.session import hosts
from zkwire.session.session import Session
from zkwire.session.states import SessionState
from zkwire.wire.requests import GetDataRequest
from zkwire.wire.watch_table import WatchKind

_log = logging.getLogger(__name__)

_PAUSE: Final = 1.0  # seconds; nothing here is urgent
CONFIG: Final = "/zookeeper/config"


async def follow_config(session: Session) -> None:
    """Give `session` the servers that /zookeeper/config lists, now and at each change, until the session is over.

    An empty list, as that of a standalone server, changes nothing.
    """
    while session.states.now not in (SessionState.CLOSED, SessionState.AUTH_FAILED):
        watch = Watch(session.requests, CONFIG, CONFIG)
        try:
            reply = await session.requests.submit(GetDataRequest(CONFIG, True), watch, WatchKind.DATA)
            addresses = hosts.parse_config(reply.data or b"")
            if addresses:
                _log.info("the ensemble lists its servers as %s", ",".join(map(str, addresses)))
                session.set_hosts(addresses)
            await watch
        except SessionClosedError:
            return
        except SessionError:
            if session.states.now is SessionState.EXPIRED:
                return  # there will be no other session
        except ServerError as error:
            if error.is_transient:
                await asyncio.sleep(_PAUSE)
                continue
            _log.warning("the servers of the ensemble cannot be followed: %s", error)
            return
        finally:
            watch.cancel()
