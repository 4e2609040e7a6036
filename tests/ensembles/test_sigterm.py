"""A service that holds a lock and leads an election ends on SIGTERM within seconds, also when the ensemble is down."""

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from zkwire.testing import RealEnsemble

ROOT = Path(__file__).resolve().parents[2]

SERVICE = """
import asyncio, signal, sys
import zkwire
from recipes import Election, Lock

async def serve() -> None:
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asyncio.current_task().cancel)
    async with zkwire.connect(sys.argv[1]) as zk, Lock(zk, sys.argv[2] + "/lock"):
        async with Election(zk, sys.argv[2] + "/election").lead():
            print("serves", flush=True)
            await asyncio.Event().wait()

try:
    asyncio.run(serve())
except asyncio.CancelledError:
    sys.exit(143)
"""
# The promise is five seconds.  A machine that is very busy needs longer; left to the session timeout it took 13.3.
BOUND = 10.0


@pytest.mark.parametrize("outage", ["stopped", "killed"])
async def test_a_service_ends_on_sigterm_with_the_settings_by_default(
    ensemble: RealEnsemble, path: str, outage: str
) -> None:
    service = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SERVICE, ensemble.hosts, path, cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert service.stdout is not None
        assert await service.stdout.readline() == b"serves\n"
        for server in ensemble.servers:
            if outage == "stopped":
                server.pause()
            else:
                server.kill()
        service.send_signal(signal.SIGTERM)
        async with asyncio.timeout(BOUND):
            assert await service.wait() == 143
    finally:
        if service.returncode is None:
            service.kill()
            await service.wait()
