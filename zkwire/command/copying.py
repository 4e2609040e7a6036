"""The commands dump and load: a tree of nodes as lines of JSON, and back.

A line is a node: its path below the dumped node, its data, and its ACL.  Ephemeral nodes belong to a session and are
left out.  Versions, times and zxids are the server's: a loaded node has its own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TextIO

import zkwire
from zkwire import ACL, Client, join_path, paths
from zkwire.command import output
from zkwire.command.nodes import descendants

_PROGRESS_EVERY = 1.0  # seconds
_SERVERS_OWN = "/zookeeper"  # the node below which a server keeps its configuration and the quotas


class BadDumpError(Exception):
    """A line is no node of a dump."""


def add_commands(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Add each command to the parser, as `nodes.add_commands` does."""
    command = add("dump", dump, "write a node and all below it to the standard output, as lines of JSON")
    command.add_argument("path", nargs="?", default="/")
    command = add("load", load, "create the nodes of a dump, read from the standard input, below a node")
    command.add_argument("path", nargs="?", default="/")
    command.add_argument("--overwrite", action="store_true", help="set the data and ACL of nodes that exist already")
    command.set_defaults(read_input=read_dump)


class Progress:
    """Says on a terminal, at most once a second, how many nodes are done."""

    def __init__(self, verb: str, to: TextIO) -> None:
        self._verb = verb
        self._to = to if to.isatty() else None
        self._now = asyncio.get_running_loop().time
        self._next = self._now() + _PROGRESS_EVERY
        self.count = 0

    def step(self) -> None:
        """Count a node."""
        self.count += 1
        if self._to is not None and self._now() >= self._next:
            print(f"\r{self._verb} {self.count} nodes", end="", file=self._to, flush=True)
            self._next = self._now() + _PROGRESS_EVERY

    def end(self) -> None:
        """Say how many nodes there were."""
        if self._to is not None:
            print(f"\r{self._verb} {self.count} nodes", file=self._to, flush=True)


async def dump(zk: Client, options: argparse.Namespace) -> None:
    """Write the nodes, parents first."""
    progress = Progress("dumped", sys.stderr)
    top = "" if options.path == "/" else options.path
    await _dump_node(zk, options.path, "")
    # With a chroot, the node of this name is the user's.
    leaves_out = _SERVERS_OWN if options.path == "/" and not zk.chroot else None
    async for path, stat in descendants(zk, options.path):
        is_servers_own = leaves_out is not None and f"{path}/".startswith(f"{leaves_out}/")
        if not stat.ephemeral_owner and not is_servers_own:
            await _dump_node(zk, path, path.removeprefix(top))
            progress.step()
    progress.end()


async def _dump_node(zk: Client, path: str, below: str) -> None:
    try:
        node, (acl, _) = await zk.get(path), await zk.get_acl(path)
    except zkwire.NoNodeError:
        if not below:
            raise
        return  # it has gone since it was listed
    print(
        output.as_json({"path": below, **output.json_of_data(node.data), "acl": [output.acl_text(one) for one in acl]})
    )


def read_dump(options: argparse.Namespace) -> None:
    """Read the whole dump, so that a bad line is refused before anything is created.  Raises: BadDumpError, OSError."""
    options.nodes = list(_nodes_of(output.standard_input()))


async def load(zk: Client, options: argparse.Namespace) -> None:
    """Create the nodes of a dump, in its order."""
    progress = Progress("loaded", sys.stderr)
    for path, data, acl in options.nodes:
        at = join_path(options.path, path.removeprefix("/")) if path else options.path
        try:
            await zk.create(at, data, acl=acl, make_parents=not path)
        except zkwire.NodeExistsError:
            if options.overwrite:
                await zk.set(at, data)
                await zk.set_acl(at, acl)
            elif path:  # the node that the dump is loaded below may be there
                raise
        progress.step()
    progress.end()


def _nodes_of(lines: Iterable[bytes]) -> Iterator[tuple[str, bytes, list[ACL]]]:
    """Yield path, data and ACL of each line.  Raises: BadDumpError, which names the line."""
    for number, line in enumerate(lines, 1):
        try:
            fields: dict[str, Any] = json.loads(line)
            path = fields["path"]
            if not isinstance(path, str):
                raise TypeError("its path is no text")
            if path:
                paths.validate(join_path("/", path.removeprefix("/")))
            yield path, output.data_of_json(fields), [output.acl_of_text(entry) for entry in fields["acl"]]
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise BadDumpError(f"line {number} is no node of a dump: {error}") from error
