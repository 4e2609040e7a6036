"""The commands dump and load: a tree of nodes as lines of JSON, and back.

A line is a node: its path below the dumped node, its data, and its ACL.  Ephemeral nodes belong to a session and are
left out.  Versions, times and zxids are the server's: a loaded node has its own.
"""

import argparse
import contextlib
import json
import sys
from typing import Any, Final

import zkwire
from zkwire import ACL, Client, join_path
from zkwire.command import output
from zkwire.command.nodes import subtree
from zkwire.command.options import CommandError

_PROGRESS_EVERY: Final = 1000  # nodes


async def dump(zk: Client, options: argparse.Namespace) -> None:
    """Write the nodes, parents first."""
    # There a server keeps its configuration and the quotas.  With a chroot, the node of this name is the user's.
    left_out = ("/zookeeper/",) if options.path == "/" and not zk.chroot else ()
    count = 0
    masked: list[str] = []
    async for path, stat in subtree(zk, options.path):
        # Of a node without a Stat, which must not be read, the end tells.
        if not stat or (stat.ephemeral_owner and path != options.path) or f"{path}/".startswith(left_out):
            continue
        try:
            node, (acl, _) = await zk.get(path), await zk.get_acl(path)
        except zkwire.NoNodeError:
            if path == options.path:
                raise
            continue  # it has gone since it was listed
        below = path.removeprefix(options.path.rstrip("/")).rstrip("/")
        entries = [output.acl_text(entry) for entry in acl]
        masked += [path] * any(map(output.is_masked, acl))
        output.say(output.as_json({"path": below, **output.json_of_data(node.data), "acl": entries}))
        count += 1
        _report("dumped", count)
    _report("dumped", count, is_last=True)
    if masked:
        acls = output.counted(len(masked), "ACL")
        raise CommandError(
            f"the server masks hashes in {acls}, the first of {masked[0]}: dump as a client that has ADMIN there"
        )


async def load(zk: Client, options: argparse.Namespace) -> None:
    """Create the nodes of a dump, in its order."""
    for count, (below, data, acl) in enumerate(options.nodes, 1):
        path = join_path(options.path, below) if below else options.path
        try:
            await zk.create(path, data, acl=acl, make_parents=not below)
        except zkwire.NodeExistsError as error:
            if options.overwrite:
                await zk.set(path, data)
                await zk.set_acl(path, acl)
            elif below:
                error.hint = "--overwrite sets the data and ACL of nodes that exist, as after a load that was cut off"
                raise
            else:  # the node that the dump is loaded below may exist
                output.say(f"zkwire: {path} exists: without --overwrite its data and ACL are kept", to=sys.stderr)
        _report("loaded", count, is_last=count == len(options.nodes))


def read_dump() -> list[tuple[str, bytes, list[ACL]]]:
    """Return path, data and ACL of each line; read all, so that a bad line is refused before anything is created.

    Raises:
        CommandError: if a line is not a node of a dump; it names the line.
        OSError: if the standard input is closed.
    """
    found = []
    for number, line in enumerate(output.standard_input(), 1):
        try:
            fields: dict[str, Any] = json.loads(line)
            below = fields["path"].removeprefix("/")
            zkwire.validate_path(f"/{below}")
            acl = [output.acl_of_text(entry) for entry in fields["acl"]]
            if not acl:
                raise ValueError("an ACL has one entry at least")
            found.append((below, output.data_of_json(fields), acl))
        except (argparse.ArgumentTypeError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise CommandError(f"line {number} is not a node of a dump: {error}") from error
    return found


def _report(verb: str, count: int, *, is_last: bool = False) -> None:
    """Show on a terminal how many nodes are done."""
    if sys.stderr.isatty() and (is_last or count % _PROGRESS_EVERY == 0):
        with contextlib.suppress(OSError):
            print(f"\r{verb} {output.counted(count, 'node')}", end="\n" if is_last else "", file=sys.stderr, flush=True)
