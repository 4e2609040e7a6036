"""The in-memory server over TCP: start and stop, framing. Faults have a file of their own."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys

import pytest

import zkwire
from tests.captures.sides import framed
from zkwire.testing import Server, ServerProcess
from zkwire.testing.memory import process
from zkwire.wire.records import ConnectRequest, RequestHeader
from zkwire.wire.requests import GetDataRequest

HANDSHAKE = framed(ConnectRequest(0, 0, 10_000, 0, bytes(16), False).encode())


async def received_by(server: Server) -> int:
    answer = await zkwire.four_letter_word(server.hosts, "mntr")
    assert isinstance(answer, dict)
    return int(answer["zk_packets_received"])


# -- its life -----------------------------------------------------------------------------------------


async def test_it_has_no_address_before_it_is_started_and_after_it_is_closed() -> None:
    server = Server()
    with pytest.raises(RuntimeError, match="no port"):
        _ = server.hosts
    await server.start()
    assert server.hosts == f"127.0.0.1:{server.port}"
    assert server.is_running
    async with zkwire.connect(server.hosts) as zk:
        await zk.create("/gone")
    await server.close()
    await server.close()
    assert not server.is_running
    async with server, zkwire.connect(server.hosts) as zk:
        assert await zk.exists("/gone") is None
    with pytest.raises(RuntimeError, match="no port"):
        _ = server.port


# -- down and up --------------------------------------------------------------------------------------


async def test_a_restart_keeps_port_data_sessions_and_ephemerals() -> None:
    async with Server() as server, zkwire.connect(server.hosts) as zk:
        port, session = server.port, zk.session_id
        await zk.create("/kept", b"x")
        await zk.create("/mine", ephemeral=True)
        async with server.stopped():
            assert not server.is_running
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", port)
            reading = asyncio.create_task(zk.get("/kept"))
        assert (await reading).data == b"x"
        assert await zk.exists("/mine") is not None
        assert (server.port, zk.session_id, server.sessions) == (port, session, [session])


# -- framing ------------------------------------------------------------------------------------------


async def test_a_client_that_does_not_read_is_not_read_either() -> None:
    """200 requests of 20 bytes ask for 100 MB, which must not all lie in memory."""
    request = GetDataRequest("/big", False)
    asked = b"".join(framed(RequestHeader(xid, request.opcode).encode() + request.encode()) for xid in range(200))
    async with Server() as server, zkwire.connect(server.hosts) as zk:
        await zk.create("/big", bytes(500_000))
        before = await received_by(server)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(HANDSHAKE + asked)
        await reader.readexactly(4 + 37)
        assert await received_by(server) - before < 100
        for xid in range(200):
            frame = await reader.readexactly(4 + 16 + 4 + 500_000 + 68)
            assert int.from_bytes(frame[4:8]) == xid
        writer.close()
        await writer.wait_closed()


# -- on the side --------------------------------------------------------------------------------------


def test_the_command_serves_until_it_is_interrupted() -> None:
    command = [sys.executable, "-m", "zkwire.testing", "--port", "0", "--tick-time", "0.5"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as serving:
        assert serving.stdout is not None
        line = serving.stdout.readline()
        hosts = next(word.rstrip(";") for word in line.split() if word.startswith("127.0.0.1:"))
        assert "nothing is kept" in line
        asyncio.run(_connect(hosts))
        serving.send_signal(signal.SIGINT)
        rest, errors = serving.communicate(timeout=60)
    assert (serving.returncode, rest, errors) == (0, "", "")


async def _connect(hosts: str) -> None:
    async with zkwire.connect(hosts):
        pass


def test_a_process_that_was_forked_meanwhile_does_not_keep_the_server() -> None:
    """As multiprocessing does: the child has all descriptors of its parent, the server's input among them."""
    gate, key = os.pipe()
    server = ServerProcess()
    try:
        child = os.fork()
        if not child:
            os.close(key)
            os.read(gate, 1)  # until the parent closes its end
            os._exit(0)
        server.close()
        assert os.waitpid(child, os.WNOHANG) == (0, 0)
    finally:
        os.close(key)
        os.close(gate)
        os.waitpid(child, 0)


def test_a_process_that_does_not_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_END_TIME_LIMIT", 0.1)
    server = ServerProcess()
    server._process.send_signal(signal.SIGSTOP)
    with pytest.raises(subprocess.TimeoutExpired):
        server.close()
    assert server._process.returncode == -signal.SIGKILL
