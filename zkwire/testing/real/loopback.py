"""Ports of this machine: free ones, and four-letter words to the server on one.  Knows nothing of servers' settings."""

import asyncio
import contextlib
import random
import socket
import ssl

from zkwire.testing.real.certificates import Certificates

# Ports are chosen below the range that Linux uses for outgoing connections. Within that range, a client that keeps
# connecting to a stopped server would at some time get the server's own port as its source port. It would then be
# connected to itself, and the server could not listen on its port again.
PORTS = range(15_000, 32_000)


async def ask(port: int, word: str, tls: Certificates | None = None) -> str:
    """Return the answer to a four-letter word, over TLS with the client's certificate, which takes every server's."""
    context = None
    if tls is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.load_cert_chain(tls.client.chain)
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    try:
        writer.write(word.encode("ascii"))
        return (await reader.read()).decode()
    finally:
        writer.transport.abort()


def free_ports(count: int) -> list[int]:
    """Return `count` different ports on which no process listens now."""
    ports: list[int] = []
    for port in random.sample(PORTS, k=100 + count):
        if len(ports) == count:
            return ports
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            ports.append(port)
    raise RuntimeError(f"too few of {100 + count} ports tried between {PORTS.start} and {PORTS.stop} are free")
