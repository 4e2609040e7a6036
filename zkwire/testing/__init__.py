"""ZooKeeper servers for tests: one in memory, with faults at exact points, and real ones that are started and stopped.

Import the names below from here, the pytest fixtures from ``zkwire.testing.fixtures``; everything else is private.
This package may import ``zkwire.errors``, ``zkwire.paths`` and ``zkwire.wire``, and must not know the client. Only
``fixtures`` imports the client, and nothing here imports ``fixtures``.
"""

from zkwire.testing.memory.clock import VirtualClock
from zkwire.testing.memory.faults import Fault, Hold
from zkwire.testing.memory.process import ServerProcess
from zkwire.testing.memory.server import Server
from zkwire.testing.real.certificates import (
    Certificate,
    Certificates,
    OpenSSLError,
    authority,
    issue,
    make_certificates,
)
from zkwire.testing.real.ensemble import EnsembleServer, RealEnsemble
from zkwire.testing.real.installation import Installation, ZooKeeperMissingError, find_zookeeper
from zkwire.testing.real.server import RealServer, ServerFailedError

__all__ = [
    "Certificate",
    "Certificates",
    "EnsembleServer",
    "Fault",
    "Hold",
    "Installation",
    "OpenSSLError",
    "RealEnsemble",
    "RealServer",
    "Server",
    "ServerFailedError",
    "ServerProcess",
    "VirtualClock",
    "ZooKeeperMissingError",
    "authority",
    "find_zookeeper",
    "issue",
    "make_certificates",
]
