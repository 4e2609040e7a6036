"""Web services and a mailer: the programs of docs/examples with FastAPI, Django and aiohttp."""

# pip: fastapi==0.165.0 uvicorn==0.54.0 django==5.2.19 django-stubs==5.2.9 aiohttp==3.14.5

import asyncio
import re
import urllib.error
import urllib.request
from asyncio import StreamReader, StreamWriter
from pathlib import Path

import pytest

import zkwire
from recipes import Lock, Queue
from tests.docs.programs import started, until_printed
from zkwire.testing import Server


def _request(url: str, *, method: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@pytest.mark.parametrize(
    ("program", "interface"), [("orders:app", "asgi3"), ("shop:application", "wsgi")], ids=["FastAPI", "Django"]
)
async def test_a_web_service(program: str, interface: str, tmp_path: Path) -> None:
    command = ["-m", "uvicorn", program, "--port", "0", "--interface", interface]
    async with (
        Server() as server,
        zkwire.connect(server.hosts) as zk,
        started(*command, ZOOKEEPER=server.hosts, DATABASE=str(tmp_path / "store")) as service,
    ):
        line = await until_printed(service, "running on")
        found = re.search(r"http://[\d.:]+", line)
        assert found is not None
        order = f"{found[0]}/accounts/7/orders/a-1"
        for placed in ("true", "false"):
            status, text = await asyncio.to_thread(_request, order, method="PUT")
            assert (status, text.replace(" ", "")) == (200, f'{{"placed":{placed}}}')
        assert (await asyncio.to_thread(_request, order, method="POST"))[0] == 405
        async with Lock(zk, "/orders/accounts/7"):
            status, text = await asyncio.to_thread(_request, order, method="PUT")
            assert status == 503
            assert "was not free within 2" in text
        if interface == "asgi3":
            health = await asyncio.to_thread(_request, f"{found[0]}/health", method="GET")
            assert health == (200, '{"zookeeper":"CONNECTED"}')
            async for names in zk.children("/orders/cleaner"):
                if names:
                    break
        service.terminate()
        assert await service.wait() in (0, -15)  # uvicorn raises the signal again when it has shut down
        if interface == "asgi3":
            assert await zk.get_children("/orders/cleaner") == []  # it has resigned


async def test_the_mailer() -> None:
    posted: list[tuple[str, bytes]] = []
    answers = [b"500 Sorry", b"200 OK", b"200 OK"]

    async def answer(reader: StreamReader, writer: StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        found = re.search(r"Content-Length: (\d+)", head)
        key = re.search(r"Idempotency-Key: (\S+)", head)
        assert found is not None
        assert key is not None
        posted.append((key[1], await reader.readexactly(int(found[1]))))
        writer.write(b"HTTP/1.1 " + answers[len(posted) - 1] + b"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    async with Server() as server, zkwire.connect(server.hosts) as zk:
        web = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with web:
            url = f"http://127.0.0.1:{web.sockets[0].getsockname()[1]}/send"
            queue = Queue(zk, "/mailer/queue")
            await queue.put(b"first")
            async with started("mailer.py", server.hosts, url) as mailer:
                assert "500" in await until_printed(mailer, "posted later")
                await queue.put(b"second")
                while await queue.size() or len(posted) < 3:
                    await asyncio.sleep(0.05)
                mailer.terminate()
                assert await mailer.wait() == 0
    assert sorted(body for _, body in posted) == [b"first", b"first", b"second"]
    assert len({key for key, _ in posted}) == 2  # the item that came back has kept its key
