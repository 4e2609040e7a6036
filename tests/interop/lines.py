"""Trials in which other clients share a path with our recipes: one holder at a time, in order where the recipe promises
it, and no node left at the end.  contenders.py describes the programs, docs/other-clients.md the results.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import zkwire
from bench.peers.builds import Command, MissingError
from recipes import Lock
from tests.interop.contenders import PREPARE, Contender, FailedError, started
from zkwire.testing import RealServer

ROUNDS: Final = 25
LIMIT: Final = 60.0
_EMPTIED_WITHIN: Final = 10.0
OURS: Final = "ours"


@dataclass(frozen=True)
class Trial:
    """The clients that share a path, and the recipes that they use there; two processes of each, for each recipe."""

    recipes: tuple[str, ...]
    others: tuple[str, ...]

    @property
    def title(self) -> str:
        return f"{' and '.join(self.recipes)} with {', '.join(self.others)}"


TRIALS: Final = [
    *(Trial(("lock",), (other,)) for other in ("kazoo", "kazoo-as-curator", "curator", "go", "rust")),
    Trial(("lock",), ("kazoo", "go")),
    Trial(("lock",), ("kazoo-as-curator", "curator", "go", "rust")),
    Trial(("write", "read"), ("curator",)),
    Trial(("write", "read"), ("kazoo",)),
    Trial(("yield", "ask"), ("curator",)),
    Trial(("lead",), ("curator",)),
    Trial(("lead",), ("rust",)),
    Trial(("lead",), ("kazoo",)),
    Trial(("lead",), ("curator", "rust")),
    Trial(("add",), ("curator", "kazoo")),
    Trial(("add8",), ("curator",)),
    Trial(("put", "take"), ("kazoo",)),
]


async def share(trial: Trial, commands: dict[str, Command], hosts: str) -> list[str]:
    """Run a trial; return what was seen.

    Raises:
        FailedError: if a promise was broken.
        MissingError: if a client lacks a recipe.
    """
    path = f"/interop/{'-'.join((*trial.recipes, *trial.others))}"
    async with AsyncExitStack() as stack:
        zk = await stack.enter_async_context(zkwire.connect(hosts))
        contenders = [
            await stack.enter_async_context(started(f"{name}-{recipe}-{number}", commands[name], hosts))
            for number, recipe, name in itertools.product(range(2), trial.recipes, (OURS, *trial.others))
        ]
        notes = await zk.create(f"{path}-notes", make_parents=True)
        orders = [(contender, contender.name.split("-")[-2]) for contender in contenders]
        lacking = [contender.name for contender, recipe in orders if not await contender.obey(recipe, path, notes, 0)]
        if lacking:
            raise MissingError(f"{', '.join(lacking)}: no such recipe")
        if "ask" in trial.recipes:
            return [await asked(zk, path, notes, contenders[1])]
        await asyncio.gather(*(contender.obey(recipe, path, notes, ROUNDS) for contender, recipe in orders))
        if trial.recipes[0].startswith("add"):
            return [await counted(zk, path, ROUNDS * len(contenders))]
        if "put" in trial.recipes:
            return [await taken(zk, notes, [contender.name for contender, recipe in orders if recipe == "put"])]
        wanted = sorted(contender.name for contender, recipe in orders if recipe != "read" for _ in range(ROUNDS))
        seen = [await noted(zk, notes, wanted)]
        if trial.recipes == ("lock",):
            seen.append(await in_turn(zk, path, notes, contenders))
        await emptied(zk, path)
        return seen


async def counted(zk: zkwire.Client, path: str, wanted: int) -> str:
    count = int.from_bytes((await zk.get(path)).data, "big", signed=True)
    if count != wanted:
        raise FailedError(f"{wanted} additions have made {count}")
    return f"{count} additions, none lost"


async def asked(zk: zkwire.Client, path: str, notes: str, other: Contender) -> str:
    """Be asked to give way, and keep the lock until we do; then ask the other client, and get the lock."""
    async with Lock(zk, path) as lease:
        await other.obey("ask", path, notes, 1)
        if not await lease.asked():
            raise FailedError("our lease has ended, and was not asked")
        yielding = asyncio.create_task(other.obey("yield", path, notes, 1))
        await until_children(zk, path, 2)
        lease.check()
    while True:  # one that still waits when it is asked does not hear of it in Curator
        holder = next((each for each in await Lock(zk, path).contenders() if each.owns), None)
        if yielding.done() or (holder is not None and await holder.ask()):
            break
    await yielding
    async with Lock(zk, path).hold(within=0):
        return f"our holder was asked by {other.name}, and the other way round"


async def taken(zk: zkwire.Client, notes: str, putters: Sequence[str]) -> str:
    wanted = {f"{name}-{number}" for name in putters for number in range(ROUNDS)}
    found = await zk.get_children(notes)
    if set(found) != wanted:
        raise FailedError(f"of {len(wanted)} items that were put {len(found)} were taken")
    return f"{len(found)} items, none lost and none twice"


async def emptied(zk: zkwire.Client, path: str) -> None:
    """Wait until the node has no children; Curator's latch, for one, deletes its node in the background."""
    names: list[str] | None = []
    try:
        async with asyncio.timeout(_EMPTIED_WITHIN), zk.children(path) as lists:
            async for names in lists:
                if not names:
                    return
    except TimeoutError:
        raise FailedError(f"nodes stay at {path}: {names}") from None


async def noted(zk: zkwire.Client, notes: str, wanted: Sequence[str]) -> str:
    """Check that each turn has left its line: two turns that overlap would lose one."""
    lines = (await zk.get(notes)).data.decode().split()
    if sorted(lines) != wanted:
        raise FailedError(f"{len(wanted)} turns have left {len(lines)} notes: two were in at a time")
    turns = sum(1 for before, after in itertools.pairwise(lines) if before != after)
    return f"{len(lines)} turns, none lost; {turns} times it went to another process"


async def in_turn(zk: zkwire.Client, path: str, notes: str, contenders: Sequence[Contender]) -> str:
    """Queue the contenders one after the other after our lease, and check that they get the lock in that order."""
    names = []
    for order in (contenders, contenders[::-1]):
        await zk.set(notes, b"")
        tasks = []
        async with Lock(zk, path):
            for place, contender in enumerate(order):
                tasks.append(asyncio.create_task(contender.obey("lock", path, notes, 1)))
                await until_children(zk, path, place + 2)
        await asyncio.gather(*tasks)
        names = [contender.name for contender in order]
        served = (await zk.get(notes)).data.decode().split()
        if served != names:
            raise FailedError(f"entered as {', '.join(names)}, served as {', '.join(served)}")
    return f"{len(names)} served in the order of their coming, twice"


async def until_children(zk: zkwire.Client, path: str, count: int) -> None:
    async for names in zk.children(path):
        if names is not None and len(names) >= count:
            return


async def play(folder: Path) -> int:
    """Run all trials; return the exit status."""
    status = 0
    commands: dict[str, Command] = {}
    for name, prepare in PREPARE.items():
        print(f"  {name} ...", flush=True)
        try:
            commands[name] = prepare(folder)
        except MissingError as error:
            print(f"  not tried: {name}: {error}", flush=True)
            status = 2
    async with RealServer() as server:
        for trial in TRIALS:
            if not all(name in commands for name in trial.others):
                continue
            try:
                async with asyncio.timeout(LIMIT):
                    seen = await share(trial, commands, server.hosts)
            except MissingError as error:
                print(f"  {trial.title}: not tried: {error}", flush=True)
                status = status or 2
            except (FailedError, TimeoutError) as error:
                print(f"  {trial.title}: FAILED: {error or f'not within {LIMIT:g} s'}", flush=True)
                status = 1
            else:
                print(f"  {trial.title}: {'; '.join(seen)}", flush=True)
    return status
