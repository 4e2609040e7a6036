"""docs/examples/tooz_driver.py with the tests that tooz has for its own drivers."""

# apt: gcc python3-dev
# pip: tooz==9.1.0 testtools==2.9.1 fixtures==4.3.2 etcd3gw==2.7.0 pymemcache==4.0.0 redis==8.1.0 sysv-ipc==1.2.0

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.programs import EXAMPLES, ROOT
from zkwire.testing import RealServer

DRIVER = "tooz_driver"


@pytest.mark.limit(600)
async def test_the_tests_of_tooz_pass(tmp_path: Path) -> None:
    """All that tooz has for a driver; those skipped are for drivers that live by heartbeats, or other drivers."""
    installed = tmp_path / f"{DRIVER}-1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {DRIVER}\nVersion: 1\n")
    (installed / "entry_points.txt").write_text(f"[tooz.backends]\nzkwire = {DRIVER}:Driver\n")
    async with RealServer(fsync=False) as server:
        environment = os.environ | {
            "TOOZ_TEST_URL": f"zkwire://{server.hosts}",
            "PYTHONPATH": os.pathsep.join(map(str, (tmp_path, EXAMPLES, ROOT))),
            "XDG_CACHE_HOME": str(tmp_path / "cache"),
        }
        command = [sys.executable, "-m", "unittest", "tooz.tests.test_coordination"]
        done = await asyncio.to_thread(
            subprocess.run, command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
    print(done.stderr)
    ran, skipped = re.search(r"Ran (\d+) tests", done.stderr), re.search(r"OK \(skipped=(\d+)\)", done.stderr)
    assert ran is not None
    assert skipped is not None
    assert (int(ran[1]), int(skipped[1])) == (83, 4)
