"""Keeps the client's list of servers up to date with the ensemble's configuration, which a reconfiguration changes."""

import asyncio
import logging
from typing import Final

from zkwire.client.watch import Watch
from zkwire.errors import ProtocolError, ServerError, SessionClosedError, SessionError, is_transient
from zkwire.session import hosts
from zkwire.session.observer import SessionState
from zkwire.session.session import Session
from zkwire.wire.requests import GetDataRequest
from zkwire.wire.watch_table import WatchKind

_log = logging.getLogger(__name__)

_PAUSE: Final = 1.0  # seconds before another attempt


async def follow_config(session: Session) -> None:
    """Set the servers of `session` to those in /zookeeper/config, now and at each change, until the session is over.

    An empty list, which a standalone server has, changes nothing.  Neither does the same list, read again by a new
    session: a client that could reach none of these servers would leave the one that it could reach.
    """
    known: list[hosts.Address] = []
    while session.states.now not in (SessionState.CLOSED, SessionState.AUTH_FAILED):
        watch = Watch(session.requests, hosts.CONFIG, hosts.CONFIG)
        try:
            reply = await session.requests.submit(GetDataRequest(hosts.CONFIG, True), watch.watcher, WatchKind.DATA)
            addresses = hosts.parse_config(reply.data or b"")
            if addresses and addresses != known:
                _log.info("the configuration of the ensemble lists the servers %s", ",".join(map(str, addresses)))
                session.set_hosts(addresses, follows=True)
                known = addresses
            await watch
        except SessionClosedError:
            return
        except SessionError:
            if session.states.now is SessionState.EXPIRED:
                return  # the client was made with renew=False: no other session follows
        except (ServerError, ProtocolError) as error:
            if is_transient(error):
                await asyncio.sleep(_PAUSE)
                continue
            _log.warning(
                "cannot read the list of servers in %s, and will not follow it any more: %s", hosts.CONFIG, error
            )
            return
