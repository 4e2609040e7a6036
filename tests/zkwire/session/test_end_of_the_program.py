"""The end of a program that has not closed its client: `asyncio.run` cancels all tasks, and the session ends."""

import asyncio
import signal
import sys

import pytest

import zkwire
from tests.support.client import cancelled
from tests.support.virtual_time import a_client, in_virtual_time
from zkwire.testing import Server

# A job that a shell runs in the background inherits that SIGINT is ignored: the programs must not depend on that.
HEAD = """
import asyncio, os, signal, sys, zkwire

signal.signal(signal.SIGINT, signal.default_int_handler)

async def client():
    zk = await zkwire.connect(sys.argv[1], 60.0)
    await zk.create("/here", ephemeral=True)
    print("ready", flush=True)
    return zk

async def in_block(started):
    async with zkwire.connect(sys.argv[1], 60.0) as zk:
        await zk.create("/here", ephemeral=True)
        print("ready", flush=True)
        started.set()
        await asyncio.sleep(60)
"""

PROGRAMS = {
    "main returns with the client open": """
async def main():
    zk = await client()
""",
    "main returns, the client's block is in another task": """
async def main():
    started = asyncio.Event()
    task = asyncio.create_task(in_block(started))
    await started.wait()
""",
    "a process that was forked from it ends before": """
async def main():
    zk = await client()
    if os.fork():
        os.wait()
        session = zk.session_id
        assert await zk.exists("/here") and zk.session_id == session
""",
    "Ctrl-C, the client is open": """
async def main():
    zk = await client()
    await asyncio.sleep(60)
""",
}


@pytest.mark.parametrize("program", PROGRAMS)
async def test_the_session_ends_with_the_program(program: str) -> None:
    async with Server() as server, zkwire.connect(server.hosts) as other:
        running = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", HEAD + PROGRAMS[program] + "\nasyncio.run(main())", server.hosts),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert running.stdout is not None
        assert await running.stdout.readline() == b"ready\n"
        if "Ctrl-C" in program:
            running.send_signal(signal.SIGINT)
        _, errors = await running.communicate()
        assert await other.exists("/here") is None, errors.decode()
        assert len(server.sessions) == 1
        assert b"AssertionError" not in errors
        assert b"never retrieved" not in errors
        assert b"was destroyed" not in errors


@in_virtual_time
@pytest.mark.parametrize("between_servers", [False, True])
async def test_a_forked_process_that_ends_leaves_the_session_to_its_parent_at_once(
    between_servers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a_client() as (server, zk):
        if between_servers:
            await server.cut_off(zk)
            server.refused = set()
        server.names()
        start, runner = server.loop.time(), zk._session._runner
        monkeypatch.setattr("os.getpid", lambda: 0)
        await cancelled(runner)
        assert server.loop.time() == start
        monkeypatch.undo()
    assert server.names() == []
