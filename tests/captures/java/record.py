"""Record what Apache's Java client sends: `python -m tests.captures.java.record`, with Java and ZooKeeper's jars.

`Calls.java` reads names of calls and makes each call.  `frames.txt` stores under each name the frames that the client
sent meanwhile, without their lengths.  Pings come at any time, so they are stored under a name of their own.
"""

import asyncio
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.support.proxy import Frame, Proxy
from zkwire.testing import RealServer, find_zookeeper

HERE = Path(__file__).parent
FRAMES = HERE / "frames.txt"
BYTES_A_LINE = 44

CALLS_BEFORE_A_CUT = [
    "connect",
    "create",
    "create ephemeral",
    "create sequential",
    "create ephemeral sequential",
    "create empty",
    "create container",
    "create with ttl",
    "create sequential with ttl",
    "create and stat",
    "create with acl",
    "exists",
    "get",
    "get children",
    "get children and stat",
    "set",
    "set a version",
    "get acl",
    "set acl",
    "delete",
    "delete a version",
    "sync",
    "count descendants",
    "get ephemerals",
    "get ephemerals below",
    "whoami",
    "transaction",
    "get many",
    "get config",
    "reconfigure a member",
    "reconfigure the whole",
    "add auth",
    "exists and watch",
    "get and watch",
    "get children and watch",
]
CALLS_BEFORE_ANOTHER_CUT = ["watch for good", "watch a tree for good", "watch another for good"]
CALLS_AT_THE_END = [
    "remove all watches",
    "remove one of two watches",
    "remove data watches",
    "remove children watches",
    "close",
]
# What the client sends on its own after its connection was cut, up to this request.
RECONNECTS = {"reconnect": "setWatches", "reconnect with persistent watches": "setWatches2"}


async def record() -> tuple[str, list[tuple[str, list[bytes]]]]:
    """Return the version, and the frames of each call under its name."""
    recorded: list[tuple[str, list[bytes]]] = []
    with tempfile.TemporaryDirectory() as folder:
        async with RealServer() as server, Proxy(server.hosts) as proxy:
            java = await asyncio.create_subprocess_exec(
                *_java(Path(folder)), proxy.hosts, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
            )
            assert java.stdin is not None
            assert java.stdout is not None

            async def call(name: str) -> None:
                assert java.stdin is not None
                assert java.stdout is not None
                mark = proxy.mark()
                java.stdin.write(f"{name}\n".encode())
                outcome = (await java.stdout.readline()).decode().strip()
                if not outcome:
                    raise RuntimeError(f"the Java program ended in {name!r}")
                if name == "add auth":  # the one call that does not wait for its answer
                    await proxy.seen("auth", mark, direction="reply")
                recorded.append((name, _payloads(proxy.log[mark:])))
                print(f"{name}: {outcome}")

            async def cut(name: str) -> None:
                mark = proxy.mark()
                proxy.drop()
                await proxy.seen(RECONNECTS[name], mark)
                recorded.append((name, _payloads(proxy.log[mark:])))

            for name in CALLS_BEFORE_A_CUT:
                await call(name)
            await cut("reconnect")
            for name in CALLS_BEFORE_ANOTHER_CUT:
                await call(name)
            await cut("reconnect with persistent watches")
            ping = await proxy.seen("ping", direction="request")
            recorded.append(("ping", [ping.payload]))
            for name in CALLS_AT_THE_END:
                await call(name)
            java.stdin.close()
            await java.wait()
        return server.version, recorded


def _java(folder: Path) -> list[str]:
    """The command that runs the program, up to its arguments."""
    jars = os.pathsep.join(map(str, find_zookeeper().class_path))
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    if shutil.which("javac") is None:
        return ["java", quiet, "-cp", jars, str(HERE / "Calls.java")]
    subprocess.run(["javac", "-cp", jars, "-d", str(folder), str(HERE / "Calls.java")], check=True)
    return ["java", quiet, "-cp", f"{folder}{os.pathsep}{jars}", "Calls"]


def _payloads(frames: list[Frame]) -> list[bytes]:
    return [frame.payload for frame in frames if frame.direction == "request" and frame.opcode != "ping"]


def save(version: str, recorded: list[tuple[str, list[bytes]]]) -> None:
    """Write the frames to their file, in hexadecimal."""
    lines = [f"# The Java client of ZooKeeper {version}; made by `python -m tests.captures.java.record`."]
    for name, frames in recorded:
        lines += ["", f"== {name}"]
        for frame in frames:
            lines += _hex(frame)
    FRAMES.write_text("\n".join(lines) + "\n", encoding="ascii")


def load() -> dict[str, list[bytes]]:
    """The frames of each call under its name, as they were recorded."""
    recorded: dict[str, list[bytes]] = {}
    for line in FRAMES.read_text(encoding="ascii").splitlines():
        if line.startswith("== "):
            frames: list[bytes] = []
            recorded[line.removeprefix("== ")] = frames
        elif line.startswith("> "):
            frames.append(bytes.fromhex(line.removeprefix("> ")))
        elif line.startswith("  "):
            frames[-1] += bytes.fromhex(line)
    return recorded


def _hex(frame: bytes) -> Iterator[str]:
    start = "> "
    for at in range(0, len(frame), BYTES_A_LINE):
        yield start + frame[at : at + BYTES_A_LINE].hex(" ", -4)
        start = "  "


if __name__ == "__main__":
    save(*asyncio.run(record()))
