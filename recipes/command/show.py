"""The command show: the locks at a path and below, with their holders and the clients that wait.

The names of the nodes, and the data of their parent, say what kind of lock it is.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass

from recipes.common.numbers import in_order, next_number
from recipes.line.contenders import Contender, holders_first, in_line, single
from recipes.line.strangers import is_ticket
from recipes.semaphore import PREFIX as PERMIT_PREFIX
from recipes.semaphore import parse_permits
from zkwire import Client, GetChildren, GetData, NoAuthError, Node, ZooKeeperError, join_path
from zkwire.command import output
from zkwire.command.options import connected

_LONGEST_DATA = 60  # characters that are shown


@dataclass(frozen=True)
class Found:
    """A lock: its path, and its contenders, those that own first."""

    path: str
    contenders: list[Contender]


async def show(options: argparse.Namespace) -> None:
    """Print the locks, once, or now and after each change."""
    async with connected(options) as zk:
        if not options.watch:
            _print(await find(zk, options.path), options)
            return
        async for _ in _changes(zk, options.path):
            _print(await find(zk, options.path), options)


async def find(zk: Client, path: str) -> list[Found]:
    """Return the locks at `path` and below that have a contender, sorted by path.

    Nodes that are gone by the time at which they are read are left out, and so are those below `path` that must not be
    read.
    Raises: NoAuthError when `path` itself must not be read.
    Requests: two writes for each level of the tree, however many nodes it has.
    """
    (top,) = await zk.pipeline([GetData(path)])
    if isinstance(top, NoAuthError):
        raise top
    found = [Found(path, holders)] if (holders := single(zk, path, top)) else []
    level = {path: top} if isinstance(top, Node) and not found else {}
    while level:
        lists = await zk.pipeline([GetChildren(parent) for parent in level])
        children = [
            join_path(parent, name)
            for parent, names in zip(level, lists, strict=True)
            for name in ([] if isinstance(names, ZooKeeperError) else names)
        ]
        nodes: dict[str, Node | ZooKeeperError] = dict(
            zip(children, await zk.pipeline([GetData(child) for child in children]) if children else (), strict=True)
        )
        for (parent, its_node), names in zip(level.items(), lists, strict=True):
            if not isinstance(names, ZooKeeperError):
                found += _locks_of(zk, parent, its_node, names, nodes)
        level = {
            child: node
            for child, node in nodes.items()
            if isinstance(node, Node) and not is_ticket(node.stat) and node.stat.num_children
        }
    return sorted(found, key=lambda each: each.path)


def _locks_of(
    zk: Client, parent: str, its_node: Node, names: list[str], nodes: dict[str, Node | ZooKeeperError]
) -> list[Found]:
    """Return the lock with its tickets below `parent`, and the locks that are a single child without a number each.

    Arguments: `names` of all children; `nodes`, what a read of each path got.
    """
    tickets = numbered = in_order(names, next_number(its_node.stat))
    # A child that must not be read counts as a ticket beside tickets only: otherwise it may be anything.
    if not any(isinstance(node := nodes[join_path(parent, name)], Node) and is_ticket(node.stat) for name in tickets):
        tickets = []
    its_nodes = [nodes[join_path(parent, name)] for name in tickets]
    counted = any(PERMIT_PREFIX in name for name in tickets)
    slots = (parse_permits(its_node.data) or 0) if counted else 1
    line = holders_first(in_line(parent, tickets, its_nodes, slots=slots, session_id=zk.session_id))
    found = [Found(parent, line)] if line else []
    for name in set(names).difference(numbered):
        path = join_path(parent, name)
        if isinstance(nodes[path], Node):
            holders = single(zk, path, nodes[path])
            found += [Found(path, holders)] if holders else []
    return found


async def _changes(zk: Client, path: str) -> AsyncGenerator[None, None]:
    """Yield once, and after each change at `path` or below; several quick changes count as one."""
    changed = asyncio.Event()
    async with zk.events(path, recursive=True) as events:

        async def listen() -> None:
            async for _ in events:
                changed.set()

        listening = asyncio.create_task(listen())
        waiting: asyncio.Task[bool] | None = None
        try:
            while True:
                yield
                waiting = asyncio.create_task(changed.wait())
                await asyncio.wait([listening, waiting], return_when=asyncio.FIRST_COMPLETED)
                if listening.done():
                    await listening  # raises why
                changed.clear()
        finally:
            for task in filter(None, (listening, waiting)):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, ZooKeeperError):
                    await task


# -- printing ---------------------------------------------------------------------------------------------------------


def _print(locks: list[Found], options: argparse.Namespace) -> None:
    now = time.time()
    if options.json:
        lines = [
            output.as_json(
                [{"lock": lock.path, "contenders": [_json_of(each, now) for each in lock.contenders]} for lock in locks]
            )
        ]
    elif locks:
        rows = [row for lock in locks for row in _rows(lock, now)]
        lines = output.columns([("LOCK", "STATE", "FOR", "SESSION", "DATA"), *rows])
    else:
        lines = [f"no lock at {options.path} or below is held or waited for"]
    if options.watch and not options.json:
        lines.append("")
    print("\n".join(lines), flush=True)


def _rows(lock: Found, now: float) -> list[tuple[str, ...]]:
    names = [_shown(lock.path, len(lock.path)), *[""] * (len(lock.contenders) - 1)]
    return [
        (
            name,
            "holds" if each.owns else "waits",
            _in_words(_age(each, now)),
            each.session or "?",
            _shown(each.data.decode(errors="backslashreplace"), _LONGEST_DATA),
        )
        for name, each in zip(names, lock.contenders, strict=True)
    ]


def _json_of(each: Contender, now: float) -> dict[str, object]:
    return {
        "owns": each.owns,
        "path": each.path,
        **output.json_of_data(each.data),
        "session": each.session,
        "since": None if each.since is None else each.since.isoformat(),
        "age": _age(each, now),
        "token": each.token,
    }


def _age(each: Contender, now: float) -> float | None:
    """Return for how many seconds the node has existed, as far as the clocks of leader and this machine agree."""
    return None if each.since is None else round(max(0.0, now - each.since.timestamp()), 3)


def _in_words(seconds: float | None) -> str:
    if seconds is None:
        return "?"
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def _shown(text: str, longest: int) -> str:
    """Return the text as one line: other clients may have written what a terminal would carry out."""
    line = "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)
    return line if len(line) <= longest or longest == len(text) else f"{line[: longest - 3]}..."
