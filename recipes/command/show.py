"""The commands that show something: the locks at a path and below, with their contenders; the leader of an election.

The names of the nodes, and the data of their parent, say what kind of lock it is.
"""

import argparse
import asyncio
import contextlib
import time
from collections.abc import Iterator
from functools import partial
from typing import Final

from recipes.common.numbers import in_order, next_number
from recipes.common.retrying import until_answered
from recipes.election import LeaderStream
from recipes.line.contenders import Contender, holders_first, in_line, single
from recipes.line.ticket import is_ticket
from recipes.semaphore import PREFIX as PERMIT_PREFIX
from recipes.semaphore import parse_permits
from zkwire import Client, GetChildren, GetData, NoAuthError, Node, ZooKeeperError, join_path
from zkwire.command import output
from zkwire.command.options import CommandError, beside, connected, tell_connection

_LONGEST_DATA: Final = 60  # characters that are shown
_QUICK: Final = 0.05  # seconds: changes within this time are shown together

Locks = dict[str, list[Contender]]  # the contenders of each path, holders first


async def show(options: argparse.Namespace) -> None:
    """Print the locks, once, or now and after each change."""
    async with connected(options) as zk:
        if not options.watch:
            _print(await find(zk, options.path), options)
            return
        with beside(tell_connection(zk, "zklock")):
            async with zk.events(options.path, recursive=True) as events:
                while True:
                    _print(await until_answered(zk, partial(find, zk, options.path)), options)
                    await anext(events)
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(_QUICK):
                            async for _ in events:
                                pass


async def leader(options: argparse.Namespace) -> None:
    """Print the data of the leader, once, or now and after each change.

    Raises:
        CommandError: if there is no leader, and it is not to be waited for.
    """
    async with connected(options) as zk:
        with beside(tell_connection(zk, "zklock")):
            async for data in LeaderStream(zk, options.path):
                if data is None and not options.follow:
                    raise CommandError(f"{options.path} has no leader")
                text = "no leader" if data is None else _shown(data.decode(errors="backslashreplace"))
                as_json = output.as_json(data if data is None else output.json_of_data(data))
                output.say(as_json if options.json else text)
                if not options.follow:
                    return


async def find(zk: Client, path: str) -> Locks:
    """Return the locks at `path` and below that have a contender, sorted by path.

    Nodes that are deleted meanwhile are left out, and so are those below `path` that must not be read.

    Args:
        zk: The client.
        path: The path of a lock, or of a node above locks.

    Raises:
        NoAuthError: if `path` itself must not be read.

    Requests:
        Two writes for each level of the tree, however many nodes it has.
    """
    (top,) = await zk.pipeline([GetData(path)])
    if isinstance(top, NoAuthError):
        raise top
    found: Locks = {path: single(zk, path, top)}
    level = {path: top} if isinstance(top, Node) and not found[path] else {}
    while level:
        lists = await zk.pipeline([GetChildren(parent) for parent in level])
        names_of = {at: [] if isinstance(each, ZooKeeperError) else each for at, each in zip(level, lists, strict=True)}
        paths = [join_path(parent, name) for parent, names in names_of.items() for name in names]
        nodes = dict(zip(paths, await zk.pipeline([GetData(each) for each in paths]) if paths else (), strict=True))
        for parent, names in names_of.items():
            found |= _locks_of(zk, parent, level[parent], names, nodes)
        level = {child: node for child, node in nodes.items() if isinstance(node, Node) and node.stat.num_children}
    return {lock: contenders for lock, contenders in sorted(found.items()) if contenders}


def _locks_of(
    zk: Client, parent: str, its_node: Node, names: list[str], nodes: dict[str, Node | ZooKeeperError]
) -> Locks:
    """Return the lock with its tickets below `parent`, and the locks that are a single child without a number each.

    Args:
        zk: The client.
        parent: The path of the node.
        its_node: What is in it.
        names: All its children.
        nodes: What a read of each path got.
    """
    tickets = numbered = in_order(names, next_number(its_node.stat))
    # A child that must not be read counts as a ticket beside tickets only: otherwise it may be anything.
    if not any(isinstance(node := nodes[join_path(parent, name)], Node) and is_ticket(node.stat) for name in tickets):
        tickets = []
    its_nodes = [nodes[join_path(parent, name)] for name in tickets]
    is_semaphore = any(PERMIT_PREFIX in name for name in tickets)
    slots = (parse_permits(its_node.data) or 0) if is_semaphore else 1
    line = in_line(zk, parent, tickets, its_nodes, slots=slots, is_semaphore=is_semaphore)
    found = {parent: holders_first(line)}
    for path in (join_path(parent, name) for name in set(names).difference(numbered)):
        if isinstance(nodes[path], Node):
            found[path] = single(zk, path, nodes[path])
    return found


# -- printing ---------------------------------------------------------------------------------------------------------


def _print(locks: Locks, options: argparse.Namespace) -> None:
    now = time.time()
    if options.json:
        found = [
            {"lock": path, "contenders": [_json_of(each, now) for each in contenders]}
            for path, contenders in locks.items()
        ]
        lines = [output.as_json(found)]
    elif locks:
        rows = [row for path, contenders in locks.items() for row in _rows(path, contenders, now)]
        lines = output.columns([("LOCK", "STATE", "AGE", "SESSION", "DATA"), *rows])
    else:
        lines = [f"no lock at {options.path} or below is held or waited for"]
    if options.watch and not options.json:
        lines.append("")
    output.say(*lines)


def _rows(path: str, contenders: list[Contender], now: float) -> Iterator[tuple[str, ...]]:
    name = _shown(path)
    for each in contenders:
        age, data = _describe_age(_age(each, now)), _shown(each.data.decode(errors="backslashreplace"), _LONGEST_DATA)
        yield name, "holds" if each.owns else "waits", age, each.session or "?", data
        name = ""


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


def _describe_age(seconds: float | None) -> str:
    if seconds is None:
        return "?"
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def _shown(text: str, longest: int | None = None) -> str:
    """Return the text as one line: other clients may have written what a terminal would carry out."""
    line = output.shown(text)
    return line if longest is None or len(line) <= longest else f"{line[: longest - 3]}..."
