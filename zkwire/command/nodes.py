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
from zkwire.command.options import CommandError

_RESYNC: Final = "the connection was lost for a while: changes may be missing"
_AT_ONCE: Final = 1000  # requests, so that a node with very many children fills no memory


async def ls(zk: Client, options: argparse.Namespace) -> None:
    """Print the children of a node, sorted by name."""
    if options.recursive:
        await _print_below(zk, options)
        return
    names = sorted(await zk.get_children(options.path))
    if not options.long:
        output.say(*([output.as_json(names)] if options.json else names))
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
                output.say(output.as_json({"name": name, "stat": known and asdict(known)}))
            else:
                rows.append(output.row_of_stat(known, name))
    if rows:
        output.say(*output.columns([("version", "bytes", "children", "owner", "changed", "name"), *rows]))


async def _print_below(zk: Client, options: argparse.Namespace, depth: int | None = None) -> None:
    async for path, stat in subtree(zk, options.path, depth):
        if path != options.path and options.json:
            output.say(output.as_json({"path": path, "stat": stat and asdict(stat)}))
        elif path != options.path:
            output.say("  ".join(output.row_of_stat(stat, path)) if options.long else path)


async def subtree(zk: Client, top: str, depth: int | None = None) -> AsyncIterator[tuple[str, Stat | None]]:
    """Yield the node `top` and each node below with its Stat, parents first, siblings by name.

    Nodes that are deleted meanwhile are left out.  A node that must not be read has None in place of its Stat.

    Args:
        zk: The client.
        top: The path of the node.
        depth: How many levels below it, None for all.

    Raises:
        NoNodeError, NoAuthError: if `top` does not exist, or must not be read.
        CommandError: at the end, if another node must not be read; it names the first one.
    """
    waiting = [(top, 0)]
    unread: list[str] = []
    while waiting:
        path, level = waiting.pop()
        try:
            names, stat = await zk.get_children_and_stat(path)
        except (zkwire.NoNodeError, zkwire.NoAuthError) as error:
            if path == top:
                raise
            if isinstance(error, zkwire.NoAuthError):
                unread.append(path)
                yield path, None
            continue
        yield path, stat
        if depth is None or level < depth:
            waiting += [(join_path(path, name), level + 1) for name in sorted(names, reverse=True)]
    if unread:
        count = output.counted(len(unread), "node")
        raise CommandError(f"{count} and what is below must not be read, the first of them {unread[0]}")


async def tree(zk: Client, options: argparse.Namespace) -> None:
    """Draw the nodes below a node; in JSON, print each one's path, as `ls -r` does."""
    if options.json:
        await _print_below(zk, options, options.depth)
        return
    top = options.path.rstrip("/").count("/")
    count = -1
    async for path, stat in subtree(zk, options.path, options.depth):
        count += 1
        if count:
            kind = "  ephemeral" if stat and stat.ephemeral_owner else "" if stat else "  ?"
            size = f"  ({stat.data_length} bytes)" if stat and stat.data_length else ""
            output.say(f"{'  ' * (path.count('/') - top)}{path.rpartition('/')[2]}{kind}{size}")
        else:
            output.say(path)
    output.say(output.counted(count, "node"))


async def get(zk: Client, options: argparse.Namespace) -> None:
    """Print the data of a node as it is; in JSON with its Stat."""
    node = await zk.get(options.path)
    if options.json:
        fields = {"path": options.path, **output.json_of_data(node.data), "stat": asdict(node.stat)}
        output.say(output.as_json(fields))
    else:
        output.write_data(node.data)


async def set_data(zk: Client, options: argparse.Namespace) -> None:
    """Set the data of a node and print the new version."""
    stat = await zk.set(options.path, options.data, options.version)
    output.say(output.as_json(asdict(stat)) if options.json else f"version {stat.version}")


async def create(zk: Client, options: argparse.Namespace) -> None:
    """Create a node and print its path."""
    kind = {name: getattr(options, name) for name in ("sequential", "container", "ttl", "make_parents")}
    path = await zk.create(options.path, options.data, acl=options.acl or zkwire.OPEN_ACL, **kind)
    output.say(output.as_json({"path": path}) if options.json else path)


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
        raise zkwire.NoNodeError(zkwire.NoNodeError.code, options.path, operation="exists", server=zk.server)
    output.say(*([output.as_json(asdict(found))] if options.json else output.lines_of_stat(found)))


async def watch(zk: Client, options: argparse.Namespace) -> None:
    """Print each change as a line, at once."""
    count = 0
    async with zk.events(options.path, recursive=options.recursive) as events:
        output.say(f"watching {options.path}", to=sys.stderr)
        async for event in events:
            fields: dict[str, str | int | None] = {"event": "RESYNC"}
            if not isinstance(event, Resync):
                fields = {"event": event.type.name, "path": event.path, "zxid": event.zxid}
            output.say(output.as_json(fields) if options.json else f"{fields['event']}  {fields.get('path', _RESYNC)}")
            count += 1
            if count == options.number:
                return


async def acl(zk: Client, options: argparse.Namespace) -> None:
    """Print the ACL of a node, one entry a line; or set it."""
    if options.entries:
        await zk.set_acl(options.path, options.entries)
        return
    lines = [output.acl_text(entry) for entry in (await zk.get_acl(options.path))[0]]
    output.say(*([output.as_json(lines)] if options.json else lines))
