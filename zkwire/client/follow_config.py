"""Keeps the client's list of servers up to date with the ensemble's configuration, which a reconfiguration changes."""

import asyncio
import logging
import random
from typing import Final

from zkwire.client.node_streams import DataStream
from zkwire.client.requester import Requester
from zkwire.errors import NoNodeError, ProtocolError, ServerError, SessionError, is_transient
from zkwire.session import hosts
from zkwire.session.session import Session

_log = logging.getLogger(__name__)

_PAUSE: Final = 1.0  # seconds before another attempt


async def follow_config(session: Session, rng: random.Random) -> None:
    """Set the servers of `session` to those in /zookeeper/config, now and at each change, until the session is over.

    An empty list, which a standalone server has, changes nothing.  Neither does the same list, read again by a new
    session: a client that could reach none of these servers would leave the one that it could reach.
    """
    known: list[hosts.Address] = []
    nodes = DataStream(Requester(session, "", rng), hosts.CONFIG)
    while True:
        try:
            async for node in nodes:
                if node is None:
                    raise NoNodeError(NoNodeError.code, hosts.CONFIG, operation="getData")
                addresses = hosts.parse_config(node.data)
                if addresses and addresses != known:
                    _log.info("the configuration of the ensemble lists the servers %s", ",".join(map(str, addresses)))
                    session.set_hosts(addresses, follows=True)
                    known = addresses
        except SessionError:
            return
        except (ServerError, ProtocolError) as error:
            if not is_transient(error):
                _log.warning(
                    "cannot read the list of servers in %s of %s, and will not follow it any more: %s",
                    hosts.CONFIG,
                    session.requests.server,
                    error,
                )
                return
            await asyncio.sleep(_PAUSE)
