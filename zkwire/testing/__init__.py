"""What users' tests and ours need to run against a ZooKeeper: today, a starter of real servers.

This package may import rungs 0 to 3 of ``zkwire`` and nothing above: it must not know the client.
"""

from zkwire.testing.real import (
    Installation,
    RealServer,
    ServerFailedError,
    ZooKeeperMissingError,
    find_zookeeper,
)

__all__ = ["Installation", "RealServer", "ServerFailedError", "ZooKeeperMissingError", "find_zookeeper"]
