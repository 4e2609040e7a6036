"""Makes an archive of the classes that ZooKeeper loads; with it Java starts a server in two thirds of the time.

`python -m tests.support.archive FILE` runs a server and writes FILE when the server ends.  Java finds the archive by an
environment variable, see `OPTIONS`.  A Java before 13 cannot write an archive, and a Java that finds no fitting archive
starts without one.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Final

import zkwire
from zkwire.testing import RealEnsemble, ServerFailedError
from zkwire.testing.real.server import POLL_INTERVAL, QUICK_START

LIMIT: Final = 60.0

OPTIONS: Final = "JDK_JAVA_OPTIONS"


def environment(archive: Path) -> dict[str, str]:
    """Return an environment in which Java uses the archive as soon as it exists."""
    given = os.environ.get(OPTIONS, "")
    return {**os.environ, OPTIONS: f"{given} -XX:SharedArchiveFile={archive}".lstrip()}


async def make(archive: Path) -> None:
    """Write the archive, complete or not at all.  Raises: TimeoutError."""
    unfinished = archive.with_suffix(".unfinished")
    ensemble = RealEnsemble(size=1, fsync=False, jvm=[*QUICK_START, f"-XX:ArchiveClassesAtExit={unfinished}"])
    try:
        async with asyncio.timeout(LIMIT), ensemble:
            async with zkwire.connect(ensemble.hosts) as zk:
                await zk.create("/archive")
            (server,) = ensemble.servers
            os.kill(server.pid, signal.SIGTERM)  # `stop` would kill it before the archive is written
            while server.is_running:
                await asyncio.sleep(POLL_INTERVAL)
    except ServerFailedError:
        return
    unfinished.rename(archive)


if __name__ == "__main__":
    asyncio.run(make(Path(sys.argv[1]).absolute()))
