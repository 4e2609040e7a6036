"""The commands on nodes: ls, tree, get, set, create, rm, stat, watch, acl."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final

import zkwire
from zkwire import Client, Resync, Stat, WatchEvent, join_path
from zkwire.command import output
from zkwire.command.options import positive

_AT_ONCE: Final = 1000  # requests, so that a node with very many children fills no memory


def add_commands(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Add each command to the parser; `add` takes its name, the coroutine function that runs it, and its help."""
    command = add("ls", ls, "list the children of a node")
    command.add_argument("path", nargs="?", default="/")
    command.add_argument("-l", "--long", action="store_true", help="with version, size, owner and time of change")
    command.add_argument("-r", "--recursive", action="store_true", help="every node below, by its whole path")

    command = add("tree", tree, "draw the nodes below a node")
    command.add_argument("path", nargs="?", default="/")
    command.add_argument("--depth", type=positive, metavar="N", help="no more than N levels")

    command = add("get", get, "print the data of a node")
    command.add_argument("path")

    command = add("set", set_data, "set the data of a node")
    command.add_argument("path")
    add_data_argument(command)
    command.add_argument("--version", type=int, default=-1, metavar="N", help="only if the data has this version")

    command = add("create", create, "create a node, and print its path")
    command.add_argument("path")
    add_data_argument(command)
    command.add_argument("-p", "--parents", action="store_true", help="create missing parents, too")
    command.add_argument("-s", "--sequential", action="store_true", help="add a number of ten digits to the name")
    command.add_argument("--container", action="store_true", help="goes by itself when its last child has gone")
    command.add_argument("--ttl", type=float, metavar="SECONDS", help="goes by itself when unchanged for so long")
    command.add_argument("--acl", action="append", type=output.acl_of_text, metavar="SCHEME:ID:cdrwa")

    command = add("rm", remove, "delete a node")
    command.add_argument("path")
    command.add_argument("-r", "--recursive", action="store_true", help="with every node below it")
    command.add_argument("--version", type=int, default=-1, metavar="N", help="only if the data has this version")

    command = add("stat", stat, "print the Stat of a node")
    command.add_argument("path")

    command = add("watch", watch, "print each change of a node, until interrupted")
    command.add_argument("path")
    command.add_argument("-r", "--recursive", action="store_true", help="and of every node below it")
    command.add_argument("-n", "--number", type=positive, metavar="N", help="end after N changes")

    command = add("acl", acl, "print the ACL of a node, or set it")
    command.add_argument("path")
    command.add_argument("entries", nargs="*", type=output.acl_of_text, metavar="SCHEME:ID:cdrwa")


def add_data_argument(command: argparse.ArgumentParser) -> None:
    """Add the argument for the data of a node."""
    command.add_argument("data", nargs="?", default="", help="text; - reads the standard input; empty by default")
    command.set_defaults(read_input=read_data)


def read_data(options: argparse.Namespace) -> None:
    """Replace the data that the command line names by its bytes.  Raises: OSError if the standard input is closed."""
    text: str = options.data
    options.data = output.standard_input().read() if text == "-" else os.fsencode(text)


async def ls(zk: Client, options: argparse.Namespace) -> None:
    """Print the children of a node, sorted by name."""
    if options.recursive:
        async for path, stat in descendants(zk, options.path):
            _print_entry(path, stat, options)
        return
    names = sorted(await zk.get_children(options.path))
    if not options.long:
        print(output.as_json(names) if options.json else "\n".join(names), end="\n" if names or options.json else "")
        return
    stats = await _stats(zk, options.path, names)
    if options.json:
        for name, known in stats.items():
            print(output.as_json({"name": name, "stat": None if known is None else output.json_of_stat(known)}))
    elif stats:
        rows = [_row(name, known) for name, known in stats.items()]
        print("\n".join(output.columns([("version", "bytes", "children", "owner", "changed", "name"), *rows])))


async def _stats(zk: Client, parent: str, names: Sequence[str]) -> dict[str, Stat | None]:
    """Return the Stat of each child that still exists, None if this client may not ask for it."""

    async def stat_of(name: str) -> None:
        try:
            stat = await zk.exists(join_path(parent, name))
        except zkwire.NoAuthError:
            found[name] = None
        else:
            if stat is None:
                del found[name]
            else:
                found[name] = stat

    found: dict[str, Stat | None] = dict.fromkeys(names)
    for start in range(0, len(names), _AT_ONCE):
        await asyncio.gather(*map(stat_of, names[start : start + _AT_ONCE]))
    return found


def _print_entry(path: str, stat: Stat, options: argparse.Namespace) -> None:
    if options.json:
        print(output.as_json({"path": path, "stat": output.json_of_stat(stat)}))
    elif options.long:
        print("  ".join(_row(path, stat)))
    else:
        print(path)


def _row(name: str, stat: Stat | None) -> tuple[str, ...]:
    if stat is None:
        return ("?", "?", "?", "?", "?", name)
    owner = f"{stat.ephemeral_owner % 2**64:#x}" if stat.ephemeral_owner else "-"
    return (
        str(stat.version),
        str(stat.data_length),
        str(stat.num_children),
        owner,
        output.moment(stat.mtime),
        name,
    )


async def descendants(zk: Client, path: str, depth: int | None = None) -> AsyncIterator[tuple[str, Stat]]:
    """Yield each node below `path` with its Stat, parents first, siblings by name; nodes that vanish are left out.

    Arguments: `depth`, of so many levels only.
    """
    waiting = [(path, 0)]
    while waiting:
        parent, level = waiting.pop()
        try:
            names, stat = await zk.get_children_and_stat(parent)
        except zkwire.NoNodeError:
            if parent == path:
                raise
            continue
        if parent != path:
            yield parent, stat
        if depth is None or level < depth:
            waiting += [(join_path(parent, name), level + 1) for name in sorted(names, reverse=True)]


async def tree(zk: Client, options: argparse.Namespace) -> None:
    """Draw the nodes below a node; in JSON, print each one's path, as `ls -r` does."""
    top = options.path.rstrip("/").count("/")
    count = 0
    if not options.json:
        print(options.path)
    async for path, stat in descendants(zk, options.path, options.depth):
        level = path.count("/") - top
        count += 1
        if options.json:
            _print_entry(path, stat, options)
        else:
            size = f"  ({stat.data_length} bytes)" if stat.data_length else ""
            print(f"{'  ' * level}{path.rpartition('/')[2]}{'  ephemeral' if stat.ephemeral_owner else ''}{size}")
    if not options.json:
        print(f"{count} nodes")


async def get(zk: Client, options: argparse.Namespace) -> None:
    """Print the data of a node as it is; in JSON with its Stat."""
    node = await zk.get(options.path)
    if options.json:
        fields = {"path": options.path, **output.json_of_data(node.data), "stat": output.json_of_stat(node.stat)}
        print(output.as_json(fields))
    else:
        output.write_data(node.data)


async def set_data(zk: Client, options: argparse.Namespace) -> None:
    """Set the data of a node and print the new version."""
    _print_stat(await zk.set(options.path, options.data, options.version), options, only_version=True)


async def create(zk: Client, options: argparse.Namespace) -> None:
    """Create a node and print its path."""
    path = await zk.create(
        options.path,
        options.data,
        sequential=options.sequential,
        container=options.container,
        ttl=options.ttl,
        acl=options.acl or zkwire.OPEN_ACL,
        make_parents=options.parents,
    )
    print(output.as_json({"path": path}) if options.json else path)


async def remove(zk: Client, options: argparse.Namespace) -> None:
    """Delete a node, or a whole tree."""
    if options.recursive:
        await zk.delete_tree(options.path)
    else:
        await zk.delete(options.path, options.version)


async def stat(zk: Client, options: argparse.Namespace) -> None:
    """Print the Stat of a node."""
    found = await zk.exists(options.path)
    if found is None:
        raise zkwire.NoNodeError(options.path)
    _print_stat(found, options)


def _print_stat(found: Stat, options: argparse.Namespace, *, only_version: bool = False) -> None:
    if options.json:
        print(output.as_json(output.json_of_stat(found)))
    elif only_version:
        print(f"version {found.version}")
    else:
        print("\n".join(output.lines_of_stat(found)))


async def watch(zk: Client, options: argparse.Namespace) -> None:
    """Print each change as a line, at once."""
    count = 0
    async with zk.events(options.path, recursive=options.recursive) as events:
        print(f"watching {options.path}", file=sys.stderr, flush=True)
        async for event in events:
            print(_line_of_event(event, as_json=options.json), flush=True)
            count += 1
            if count == options.number:
                return


def _line_of_event(event: WatchEvent | Resync, *, as_json: bool) -> str:
    fields: dict[str, Any] = {"event": "RESYNC"}
    if isinstance(event, WatchEvent):
        fields = {"event": event.type.name, "path": event.path, "zxid": event.zxid}
    if as_json:
        return output.as_json(fields)
    if not isinstance(event, WatchEvent):
        return "RESYNC  the connection was lost for a while: changes may be missing"
    return f"{event.type.name}  {event.path}"


async def acl(zk: Client, options: argparse.Namespace) -> None:
    """Print the ACL of a node, one entry a line; or set it."""
    if options.entries:
        await zk.set_acl(options.path, options.entries)
        return
    entries, _ = await zk.get_acl(options.path)
    lines = [output.acl_text(entry) for entry in entries]
    print(output.as_json(lines) if options.json else "\n".join(lines))
