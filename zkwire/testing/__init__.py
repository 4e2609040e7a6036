"""What users' tests and ours need to run against a ZooKeeper: one in memory, and a starter of real servers.

This package may import rungs 0 to 3 of ``zkwire`` and nothing above: it must not know the client. Only ``fixtures``,
which stands on top of the client, may, and is imported by nothing here.
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
