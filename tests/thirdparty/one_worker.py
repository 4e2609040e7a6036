"""The programs of docs/examples that run in one worker only, with the packages that they need: `make thirdparty`."""

# pip: apscheduler==3.11.3 celery==5.7.0 celery-types==0.26.0

import asyncio
import json
import re
import sys
import urllib.request
from pathlib import Path

import pytest

import zkwire
from recipes import Contender, only_one
from tests.docs.programs import started, until_printed
from tests.support.recipes import until_line
from zkwire import Client
from zkwire.testing import Server

pytestmark = pytest.mark.limit(120)


async def _leader(zk: Client, path: str) -> tuple[Contender, int]:
    """Wait for two candidates; return the leader, and its process id."""
    await until_line(zk, path, 2, limit=60)
    leader = await only_one(zk, path).leader()
    assert leader is not None
    return leader, int(leader.data.split()[1])


async def test_one_of_uvicorns_workers_has_the_scheduler_and_all_serve_requests() -> None:
    """FastAPI and APScheduler: the worker that loses its turn goes on serving, and is a candidate again."""
    command, had = ["-m", "uvicorn", "reports:app", "--workers", "2", "--port", "0"], []
    async with (
        Server() as server,
        zkwire.connect(server.hosts) as zk,
        started(*command, ZOOKEEPER=server.hosts, INTERVAL="0.2") as service,
    ):
        url = re.findall(r"http://\S+", await until_printed(service, "running on"))[0]
        for _ in range(3):
            leader, pid = await _leader(zk, "/reports/scheduler")
            assert service.stdout is not None
            async for line in service.stdout:  # with a traceback of APScheduler for a job that it has cancelled
                if f"worker {pid} with token {leader.token}" in line.decode():
                    break
            had.append(pid)
            serving = set[int]()
            while len(serving) < 2:
                answer = await asyncio.to_thread(urllib.request.urlopen, url, timeout=20)
                found = json.load(answer)
                assert found["scheduler"] == leader.data.decode()
                serving.add(found["worker"])
            server.expire(int(leader.session, 16))
        assert had[0] == had[2] != had[1]
        service.terminate()
        await service.communicate()
        assert await zk.get_children("/reports/scheduler") == []  # all have resigned


async def test_one_host_runs_celery_beat_and_the_next_one_when_its_turn_is_lost(tmp_path: Path) -> None:
    beat = ["-m", "celery", "-A", "digest", "beat", "--pidfile=", "--loglevel", "info", "-s"]
    elect = ["-m", "recipes", "elect", "/digest/beat", "--", sys.executable, *beat]
    async with Server() as server, zkwire.connect(server.hosts) as zk:
        given = {"ZKWIRE_HOSTS": server.hosts, "BROKER": "memory://", "INTERVAL": "0.2"}
        async with (
            started(*elect, str(tmp_path / "one"), **given) as one,
            started(*elect, str(tmp_path / "two"), **given) as two,
        ):
            had = []
            for _ in range(3):
                leader, pid = await _leader(zk, "/digest/beat")
                leading = one if pid == one.pid else two
                await until_printed(leading, "Sending due task digest (digest.send)")
                await zk.delete(leader.path)
                await until_printed(leading, "the command was ended; waiting to lead again")
                had.append(pid)
            assert had[0] == had[2] != had[1]
