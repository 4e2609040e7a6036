"""Record the captures: `python -m tests.captures.record` plays what is recorded to a fresh real server, and saves it.

recording.py says how to read the files.  To add an exchange, write its name, its purpose, `send a`, and the request as
`? GetDataRequest("/reads/n", False)` into the file of its theme, then record.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from tests.captures.meaning import meanings
from tests.captures.play import Player
from tests.captures.recording import THEMES, Recording, load, save
from tests.captures.sides import RealSide, framed
from zkwire.testing import RealServer
from zkwire.wire import multi, records, requests

SUPER = "super:xQJmxLMiHGwaqBvst5y6rkB6HQs="  # super:admin


@contextmanager
def real_server() -> Iterator[RealServer]:
    """Start a new server with the settings that the recordings need."""
    server = RealServer(
        version="3.9",
        tick_time=0.5,
        properties={"maxSessionTimeout": "600000"},
        jvm=[f"-Dzookeeper.DigestAuthenticationProvider.superDigest={SUPER}"],
        fsync=False,
    )
    asyncio.run(server.start())
    try:
        yield server
    finally:
        asyncio.run(server.close())


def fill(recording: Recording) -> None:
    """Make the bytes of the requests that are only written down; their xids are greater than all others."""
    names = {**vars(records), **vars(requests), **vars(multi)}
    xid = max((int.from_bytes(each.sent[4:8], "big", signed=True) for each in recording.exchanges), default=0)
    for exchange in recording.exchanges:
        if exchange.request:
            xid += 1
            request = eval(exchange.request, names)
            exchange.sent = framed(records.RequestHeader(xid, request.opcode).encode() + request.encode())


def main() -> None:
    with real_server() as server:
        for theme in THEMES:
            recording = load(theme)
            fill(recording)
            played = Player(RealSide(server.port), recording).play()
            for exchange in played.exchanges:
                exchange.meanings = meanings(exchange)
            save(played, server.version)
            print(f"{theme}: {len(played.exchanges)} exchanges")


if __name__ == "__main__":
    main()
