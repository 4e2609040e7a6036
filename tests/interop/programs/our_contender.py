"""Our recipes, as a contender of tests/interop/lines.py, described in contenders.py."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import recipes
import zkwire

# The recipe of each order; the answer to any other order is "lacking".
NAMES = {"lock": "Lock", "read": "ReadWriteLock", "write": "ReadWriteLock", "lead": "Election", "add": "Counter"}
NAMES |= {"add8": "Counter", "put": "Queue", "take": "Queue"}


def held(recipe: str, zk: zkwire.Client, path: str) -> AbstractAsyncContextManager[object]:
    kind: Any = getattr(recipes, NAMES[recipe])
    thing = kind(zk, path)
    if recipe == "read":
        thing = thing.read()
    elif recipe == "write":
        thing = thing.write()
    elif recipe == "lead":
        thing = thing.lead()
    entered: AbstractAsyncContextManager[object] = thing
    return entered


async def add(kind: Any, zk: zkwire.Client, path: str, notes: str, rounds: int, name: str) -> None:
    counter = kind(zk, path, size=4)
    for _ in range(rounds):
        await counter.add(1)


async def add8(kind: Any, zk: zkwire.Client, path: str, notes: str, rounds: int, name: str) -> None:
    counter = kind(zk, path)
    for _ in range(rounds):
        await counter.add(1)


async def put(kind: Any, zk: zkwire.Client, path: str, notes: str, rounds: int, name: str) -> None:
    queue = kind(zk, path)
    for number in range(rounds):
        await queue.put(f"{name}-{number}".encode())


async def take(kind: Any, zk: zkwire.Client, path: str, notes: str, rounds: int, name: str) -> None:
    queue = kind(zk, path)
    for _ in range(rounds):
        async with queue.claim() as item:
            await zk.create(f"{notes}/{item.data.decode()}")


OTHERS: dict[str, Callable[..., Awaitable[None]]] = {"add": add, "add8": add8, "put": put, "take": take}


async def obey(zk: zkwire.Client, recipe: str, path: str, notes: str, rounds: int, name: str) -> str:
    if not hasattr(recipes, NAMES.get(recipe, "")):
        return "lacking"
    if recipe in OTHERS:
        await OTHERS[recipe](getattr(recipes, NAMES[recipe]), zk, path, notes, rounds, name)
        return "done"
    for _ in range(rounds):
        async with held(recipe, zk, path):
            before, _ = await zk.get(notes)
            if recipe == "read":
                await asyncio.sleep(0.002)
                assert (await zk.get(notes)).data == before, (
                    "another client has written while we held the lock for reading"
                )
            else:
                await zk.set(notes, before + f"{name}\n".encode())
    return "done"


async def main() -> None:
    loop = asyncio.get_running_loop()
    async with zkwire.connect(sys.argv[1]) as zk:
        print("ready", flush=True)
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            recipe, path, notes, rounds, name = line.split()
            print(await obey(zk, recipe, path, notes, int(rounds), name), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
