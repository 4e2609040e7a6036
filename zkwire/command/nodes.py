"""The commands on nodes: ls, tree, get, set, create, rm, stat, watch, acl."""

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import Final

import zkwire
from zkwire import Client, Resync, Stat, join_path
from zkwire.command import output

_AT_ONCE: Final = 1000  # requests, so that a node with very many children fills no memory


async def ls(zk: Client, options: argparse.Namespace) -> None:
    """Print the children of a node, sorted by name."""
    if options.recursive:
        async for path, stat in subtree(zk, options.path):
            if path != options.path:
                _print_entry(path, stat, options)
        return
    names = sorted(await zk.get_children(options.path))
    if not options.long:
        print(output.as_json(names) if options.json else "\n".join(names), end="\n" if names or options.json else "")
        return
    rows = []
    for start in range(0, len(names), _AT_ONCE):
        part = names[start : start + _AT_ONCE]
        asked = (zk.exists(join_path(options.path, name)) for name in part)
        for name, found in zip(part, await asyncio.gather(*asked, return_exceptions=True), strict=True):
            if isinstance(found, BaseException) and not isinstance(found, zkwire.NoAuthError):
                raise found
            if found is None:
                continue  # it has gone since it was listed
            known = found if isinstance(found, Stat) else None
            if options.json:
                print(output.as_json({"name": name, "stat": known and asdict(known)}))
            else:
                rows.append(output.row_of_stat(known, name))
    if rows:
        print("\n".join(output.columns([("version", "bytes", "children", "owner", "changed", "name"), *rows])))


def _print_entry(path: str, stat: Stat, options: argparse.Namespace) -> None:
    if options.json:
        print(output.as_json({"path": path, "stat": asdict(stat)}))
    else:
        print("  ".join(output.row_of_stat(stat, path)) if options.long else path)


async def subtree(zk: Client, top: str, depth: int | None = None) -> AsyncIterator[tuple[str, Stat]]:
    """Yield the node `top` and each node below with its Stat, parents first, siblings by name.

    Nodes that are deleted meanwhile are left out.

    Args:
        zk: The client.
        top: The path of the node.
        depth: How many levels below it, None for all.

    Raises:
        NoNodeError: if `top` does not exist.
    """
    waiting = [(top, 0)]
    while waiting:
        path, level = waiting.pop()
        try:
            names, stat = await zk.get_children_and_stat(path)
        except zkwire.NoNodeError:
            if path == top:
                raise
            continue
        yield path, stat
        if depth is None or level < depth:
            waiting += [(join_path(path, name), level + 1) for name in sorted(names, reverse=True)]


async def tree(zk: Client, options: argparse.Namespace) -> None:
    """Draw the nodes below a node; in JSON, print each one's path, as `ls -r` does."""
    top = options.path.rstrip("/").count("/")
    count = -1
    async for path, stat in subtree(zk, options.path, options.depth):
        count += 1
        if options.json:
            if count:
                _print_entry(path, stat, options)
        elif count:
            size = f"  ({stat.data_length} bytes)" if stat.data_length else ""
            indent = "  " * (path.count("/") - top)
            print(f"{indent}{path.rpartition('/')[2]}{'  ephemeral' if stat.ephemeral_owner else ''}{size}")
        else:
            print(path)
    if not options.json:
        print(f"{count} nodes")


async def get(zk: Client, options: argparse.Namespace) -> None:
    """Print the data of a node as it is; in JSON with its Stat."""
    node = await zk.get(options.path)
    if options.json:
        fields = {"path": options.path, **output.json_of_data(node.data), "stat": asdict(node.stat)}
        print(output.as_json(fields))
    else:
        output.write_data(node.data)


async def set_data(zk: Client, options: argparse.Namespace) -> None:
    """Set the data of a node and print the new version."""
    stat = await zk.set(options.path, options.data, options.version)
    print(output.as_json(asdict(stat)) if options.json else f"version {stat.version}")


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
        raise zkwire.NoNodeError(zkwire.NoNodeError.code, options.path, operation="exists")
    print(output.as_json(asdict(found)) if options.json else "\n".join(output.lines_of_stat(found)))


async def watch(zk: Client, options: argparse.Namespace) -> None:
    """Print each change as a line, at once."""
    count = 0
    async with zk.events(options.path, recursive=options.recursive) as events:
        print(f"watching {options.path}", file=sys.stderr, flush=True)
        async for event in events:
            fields: dict[str, str | int | None] = {"event": "RESYNC"}
            line = "RESYNC  the connection was lost for a while: changes may be missing"
            if not isinstance(event, Resync):
                fields = {"event": event.type.name, "path": event.path, "zxid": event.zxid}
                line = f"{event.type.name}  {event.path}"
            print(output.as_json(fields) if options.json else line, flush=True)
            count += 1
            if count == options.number:
                return


async def acl(zk: Client, options: argparse.Namespace) -> None:
    """Print the ACL of a node, one entry a line; or set it."""
    if options.entries:
        await zk.set_acl(options.path, options.entries)
        return
    entries, _ = await zk.get_acl(options.path)
    lines = [output.acl_text(entry) for entry in entries]
    print(output.as_json(lines) if options.json else "\n".join(lines))
