"""`python -m zkwire.testing`: an in-memory ZooKeeper server, which runs until it is interrupted."""

import argparse
import asyncio
import os
import signal
import sys

from zkwire.testing.memory.server import Server

_READ_SIZE = 4096


def main() -> int:
    """Serve until SIGINT or SIGTERM; return 0, or 1 when the port is not available."""
    parser = argparse.ArgumentParser(prog="python -m zkwire.testing", description=__doc__)
    parser.add_argument("--port", type=int, default=2181, help="the port, 0 for a free one (default: 2181)")
    parser.add_argument("--host", default="127.0.0.1", help="the address (default: 127.0.0.1)")
    parser.add_argument("--tick-time", type=float, default=2.0, help="the server's tick in seconds (default: 2)")
    longest = "the longest session timeout that is granted, in seconds (default: 20 ticks)"
    parser.add_argument("--max-session-timeout", type=float, default=None, help=longest)
    parser.add_argument("--with-stdin", action="store_true", help="end when the standard input, a pipe, does")
    settings = vars(parser.parse_args())
    with_stdin = settings.pop("with_stdin")
    if os.name != "posix":
        parser.error("it runs on Linux and macOS only: use zkwire.testing.Server in the process of your tests")
    try:
        server = Server(**settings)
    except ValueError as error:
        parser.error(str(error))
    return asyncio.run(_serve(server, f"{settings['host']}:{settings['port']}", with_stdin=with_stdin))


async def _serve(server: Server, address: str, *, with_stdin: bool) -> int:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)

    def read_input() -> None:
        if not os.read(sys.stdin.fileno(), _READ_SIZE):
            ended.set()

    if with_stdin:
        loop.add_reader(sys.stdin.fileno(), read_input)
    try:
        await server.start()
    except OSError as error:
        print(f"cannot listen on {address}: {error.strerror or error}", file=sys.stderr)
        return 1
    try:
        print(f"ZooKeeper in memory for tests on {server.hosts}; nothing is kept when it ends", flush=True)
        await ended.wait()
    finally:
        await server.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
