"""A program of docs/examples without the package that it needs: what it does with ZooKeeper, and with its store.

`python -m tests.docs.stand_ins orders HOSTS` places the orders whose ids it reads, one a line, and prints each answer.
`make thirdparty` runs the same programs with those packages.
"""

import asyncio
import importlib
import sys
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock


class HTTPException(Exception):
    """FastAPI's, with a status and a text."""


def _app(lifespan: Any) -> Any:
    return MagicMock(lifespan=lifespan, put=lambda path: lambda function: function)


def _post(url: str, data: bytes, headers: dict[str, str]) -> Any:
    print("posted", data.decode(), flush=True)
    return nullcontext(MagicMock())


STAND_INS: dict[str, Any] = {
    "fastapi": MagicMock(FastAPI=_app, HTTPException=HTTPException),
    "django.conf": MagicMock(),
    "django.core.wsgi": MagicMock(),
    "django.http": MagicMock(JsonResponse=lambda data, status=200: (status, data)),
    "django.urls": MagicMock(),
    "aiohttp": MagicMock(ClientError=OSError, ClientSession=lambda timeout: nullcontext(SimpleNamespace(post=_post))),
}


async def _orders(program: Any) -> None:
    async with program.lifespan(program.app):
        while order := (await asyncio.to_thread(sys.stdin.readline)).strip():
            try:
                answer = 200, await program.place_order(7, order, SimpleNamespace(app=program.app))
            except HTTPException as refusal:
                answer = refusal.args
            print(*answer, flush=True)


def main(name: str, hosts: str) -> None:
    sys.modules.update(STAND_INS)
    program = importlib.import_module(name)
    if name == "orders":
        asyncio.run(_orders(program))
    elif name == "mailer":
        asyncio.run(program.until_sigterm(hosts, "http://mail.example/send"))
    else:
        for line in sys.stdin:
            print(*program.place_order(SimpleNamespace(method="PUT"), 7, line.strip()), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
