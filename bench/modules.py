"""Count the modules that a lock and a read enter: how much of the code one has to know to follow them.

Run from the project's root::

    python bench/modules.py                  # on an in-memory server
    python bench/modules.py --most 18        # fail if acquire and release together enter more modules

The operations are `lock.acquire()` and `lease.release()` of a path that the client knows, and `zk.get`, each once after
a warm-up.  The server runs in a process of its own, so that only what the client does is counted.  A call is one entry
into a Python function, or one more step of a coroutine.  The exit status is 1 if there are too many modules, 2 if
something could not be measured.
"""

import argparse
import asyncio
import sys
from collections import Counter
from collections.abc import Awaitable, Sequence
from pathlib import Path
from types import FrameType
from typing import Final

# So that this file runs as a script from a checkout without installing the project.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import recipes
import zkwire
from bench.servers import ROOT, positive
from bench.status import with_status
from zkwire.testing import ServerProcess

MOST: Final = 18  # modules that acquire and release enter together
WARM_UPS: Final = 3
_OURS: Final = (f"{ROOT}/zkwire/", f"{ROOT}/recipes/")

Calls = Counter[str]


async def calls_of(operation: Awaitable[object]) -> Calls:
    """Await the operation; return how many calls it has made into each module of zkwire and recipes."""
    entered: Counter[str] = Counter()

    def profile(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            entered[frame.f_code.co_filename] += 1

    sys.setprofile(profile)
    try:
        await operation
    finally:
        sys.setprofile(None)
    names = {
        file: Path(file).relative_to(ROOT).with_suffix("").as_posix() for file in entered if file.startswith(_OURS)
    }
    return Counter({name: entered[file] for file, name in names.items()})


async def measure(hosts: str) -> dict[str, Calls]:
    """Return the calls of each operation on the server at `hosts`."""
    found: dict[str, Calls] = {}
    async with zkwire.connect(hosts) as zk:
        lock = recipes.Lock(zk, "/locks/a")
        for _ in range(WARM_UPS):
            async with lock:
                await zk.get("/locks/a")
        found["acquire"] = await calls_of(acquiring := asyncio.ensure_future(lock.acquire()))
        found["release"] = await calls_of((await acquiring).release())
        found["get"] = await calls_of(zk.get("/locks/a"))
    return found


def table(found: dict[str, Calls]) -> list[str]:
    """Return the lines of a table with a line for each module."""
    modules = sorted(set().union(*found.values()))
    rows = [
        ("calls into", *found),
        *((module, *(calls[module] or "" for calls in found.values())) for module in modules),
    ]
    rows.append((f"{len(modules)} modules", *(f"{calls.total()} in {len(calls)}" for calls in found.values())))
    return [f"{name:<32}" + "".join(f"{cell!s:>12}" for cell in cells) for name, *cells in rows]


@with_status
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    parser = argparse.ArgumentParser(description="Count the modules that a lock and a read enter.")
    parser.add_argument(
        "--most", type=positive, default=MOST, metavar="N", help=f"fail above so many (default: {MOST})"
    )
    options = parser.parse_args(arguments)
    with ServerProcess() as server:
        found = asyncio.run(measure(server.hosts))
    together = len(found["acquire"].keys() | found["release"].keys())
    print("\n".join(table(found)))
    print(f"acquire and release enter {together} modules; at most {options.most} are allowed")
    return 0 if together <= options.most else 1


if __name__ == "__main__":
    sys.exit(main())
