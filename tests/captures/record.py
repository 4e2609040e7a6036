"""Records the captures: `python -m tests.captures.record` plays the script to a fresh real server.

It writes one text file per theme to recorded/.  An exchange begins with `== name`, followed by its meaning as a
comment.  `open a` is a new connection called a, `send a` a request on it, `drop a` its end by the client.  `>` marks
the bytes sent to the server, with their length.  `<` marks the frames that came back, each with its connection and
without its length, in their order on each connection.  `closed a` says that the server closed a.  `zxid before` is the
last transaction before the theme.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from tests.captures.recording import save
from tests.captures.script.tools import SUPER_OPTION
from tests.captures.targets import SocketTarget
from tests.captures.themes import THEMES, play
from zkwire.testing import RealServer


@contextmanager
def real_server() -> Iterator[RealServer]:
    """Start a new server with the settings that the script needs."""
    server = RealServer(
        version="3.9",
        tick_time=0.5,
        properties={"maxSessionTimeout": "600000"},
        jvm=[SUPER_OPTION],
        fsync=False,
    )
    asyncio.run(server.start())
    try:
        yield server
    finally:
        asyncio.run(server.close())


def main() -> None:
    with real_server() as server:
        for theme in THEMES:
            with SocketTarget(server.port) as target:
                recording = play(theme, target)
            save(recording, server.version)
            print(f"{theme}: {len(recording.exchanges)} exchanges")


if __name__ == "__main__":
    main()
