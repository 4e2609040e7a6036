"""What users' tests and ours need to run against a ZooKeeper: one in memory, and a starter of real servers.

This package may import rungs 0 to 3 of ``zkwire`` and nothing above: it must not know the client. Only ``fixtures``,
which stands on top of the client, may, and is imported by nothing here.
"""

from zkwire.testing.clock import VirtualClock
from zkwire.testing.faults import Fault, Hold
from zkwire.testing.process import ServerProcess
from zkwire.testing.real import (
    Installation,
    RealServer,
    ServerFailedError,
    ZooKeeperMissingError,
    find_zookeeper,
)
from zkwire.testing.server import Server

__all__ = [
    "Fault",
    "Hold",
    "Installation",
    "RealServer",
    "Server",
    "ServerFailedError",
    "ServerProcess",
    "VirtualClock",
    "ZooKeeperMissingError",
    "find_zookeeper",
]
