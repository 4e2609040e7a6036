"""Our recipes, as a contender of tests/interop/lines.py, described in contenders.py."""

import asyncio
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

import zkwire
from recipes import Counter, Election, Lock, Queue, ReadWriteLock

HELD: Final[dict[str, Callable[[zkwire.Client, str], AbstractAsyncContextManager[Any]]]] = {
    "lock": Lock,
    "read": lambda zk, path: ReadWriteLock(zk, path).read(),
    "write": lambda zk, path: ReadWriteLock(zk, path).write(),
    "lead": lambda zk, path: Election(zk, path).lead(),
}


async def turn(zk: zkwire.Client, recipe: str, path: str, notes: str, item: str, name: str) -> None:
    """Carry out one round of an order."""
    match recipe:
        case "add":
            await Counter(zk, path, size=4).add(1)
        case "add8":
            await Counter(zk, path).add(1)
        case "put":
            await Queue(zk, path).put(item.encode())
        case "take":
            async with Queue(zk, path, max_attempts=99).claim() as taken:
                await zk.create(f"{notes}/{taken.data.decode()}")
        case _:
            async with HELD[recipe](zk, path):
                before, _ = await zk.get(notes)
                if recipe != "read":
                    await zk.set(notes, before + f"{name}\n".encode())
                    return
                await asyncio.sleep(0.002)
                assert (await zk.get(notes)).data == before, "a write while we held the lock for reading"


async def main() -> None:
    loop = asyncio.get_running_loop()
    async with zkwire.connect(sys.argv[1]) as zk:
        print("ready", flush=True)
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            recipe, path, notes, rounds, name = line.split()
            for number in range(int(rounds)):
                await turn(zk, recipe, path, notes, f"{name}-{number}", name)
            print("done", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
