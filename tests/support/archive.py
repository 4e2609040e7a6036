"""Makes an archive of the classes that ZooKeeper loads, with which Java starts a server in two thirds of the time.

`python -m tests.support.archive FILE` runs a server for it and makes FILE at its end, which Java finds by the
environment: see
`OPTIONS`.  A Java that cannot make one (before 13) makes none, and one that finds none, or one that is not for it, does
without.
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
    """The environment, in which each Java starts with the archive as soon as there is one."""
    given = os.environ.get(OPTIONS, "")
    return {**os.environ, OPTIONS: f"{given} -XX:SharedArchiveFile={archive}".lstrip()}


async def make(archive: Path) -> None:
    """Make the archive; it is there as a whole, or not at all.  Raises: TimeoutError."""
    unfinished = archive.with_suffix(".unfinished")
    ensemble = RealEnsemble(size=1, fsync=False, jvm=[*QUICK_START, f"-XX:ArchiveClassesAtExit={unfinished}"])
    try:
        async with asyncio.timeout(LIMIT), ensemble:
            async with zkwire.connect(ensemble.hosts) as zk:
                await zk.create("/archive")
            (server,) = ensemble.servers
            os.kill(server.pid, signal.SIGTERM)  # `stop` would not wait for as long as it may take
            while server.is_running:
                await asyncio.sleep(POLL_INTERVAL)
    except ServerFailedError:
        return
    unfinished.rename(archive)


if __name__ == "__main__":
    asyncio.run(make(Path(sys.argv[1]).absolute()))
