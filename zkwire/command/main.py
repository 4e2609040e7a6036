"""The entry of the command `zkwire`: parse the arguments, run one command, end with its exit status (see `options`)."""

import argparse
import asyncio
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

from zkwire import Perms
from zkwire.command import copying, nodes, output, servers
from zkwire.command import options as common

_ACL: Final = {"type": lambda text: output.acl_of_text(text, 1), "metavar": "SCHEME:ID:cdrwa"}
_DATA: Final = "text; - reads the standard input; text that begins with - stands after --"
_ARGUMENTS: Final[dict[str, dict[str, Any]]] = {
    "path": {},
    "path?": {"nargs": "?", "default": "/"},
    "data": {"help": _DATA},
    "data?": {"nargs": "?", "default": "", "help": f"{_DATA}; empty by default"},
    "entries": {"nargs": "*", **_ACL},
    "--acl": {"action": "append", **_ACL},
    "--container": {**common.FLAG, "help": "goes by itself when its last child has gone"},
    "--depth": {"type": common.positive, "metavar": "N", "help": "no more than N levels"},
    "-l/--long": {**common.FLAG, "help": "with version, size, owner and time of change"},
    "-n/--number": {"type": common.positive, "metavar": "N", "help": "N times, and end then"},
    "--overwrite": {**common.FLAG, "help": "set the data and ACL of nodes that exist already"},
    "-p/--parents": {**common.FLAG, "dest": "make_parents", "help": "create missing parents, too, with the same ACL"},
    "-r/--recursive": {**common.FLAG, "help": "with every node below it"},
    "-s/--sequential": {**common.FLAG, "help": "add a number of ten digits to the name"},
    "--ttl": {"type": float, "metavar": "SECONDS", "help": "goes by itself when unchanged for so long"},
    "--version": {"type": int, "default": -1, "metavar": "N", "help": "only if the data has this version"},
}
_COMMANDS: Final[dict[str, tuple[Callable[..., Any], str, str]]] = {
    "ls": (nodes.ls, "list the children of a node", "path? -l/--long -r/--recursive"),
    "tree": (nodes.tree, "draw the nodes below a node", "path? --depth"),
    "get": (nodes.get, "print the data of a node", "path"),
    "set": (nodes.set_data, "set the data of a node", "path data --version"),
    "create": (nodes.create, "create a node", "path data? -p/--parents -s/--sequential --container --ttl --acl"),
    "rm": (nodes.remove, "delete a node", "path -r/--recursive --version"),
    "stat": (nodes.stat, "print the Stat of a node", "path"),
    "watch": (nodes.watch, "print each change of a node, until interrupted", "path -r/--recursive -n/--number"),
    "acl": (nodes.acl, "print the ACL of a node, or set it", "path entries"),
    "ping": (servers.ping, "measure how long the server takes to answer", "-n/--number"),
    "srvr": (servers.ask, "print what each server says of itself", ""),
    "mntr": (servers.ask, "print each server's counters", ""),
    "whoami": (servers.whoami, "print the identities by which ACLs know this client", ""),
    "config": (servers.config, "print the ensemble's configuration", ""),
    "sync": (lambda zk, options: zk.sync(options.path), "have a server catch up with its leader", "path?"),
    "dump": (copying.dump, "write a node and all below it to the standard output, as lines of JSON", "path?"),
    "load": (copying.load, "create the nodes of a dump, read from the standard input", "path? --overwrite"),
}


@output.prepared_streams()
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that `arguments` name, the program's own by default; return the exit status."""
    options = parser().understand(sys.argv[1:] if arguments is None else arguments)
    if options.name == "rm" and options.recursive and (options.version != -1 or options.path == "/"):
        options.parser.error("-r is without --version, and not for /, the root or the chroot: name a node")
    acl = options.name == "create" and options.make_parents and options.acl
    if acl and not any(entry.perms & Perms.CREATE for entry in acl):
        options.parser.error("-p gives parents this ACL, and without c nothing can be created below them")
    return common.exit_status("zkwire", lambda: _run(options))


def parser() -> common.Parser:
    """Return the parser of the whole command line."""
    top = common.Parser.top("zkwire", "Look at the nodes of a ZooKeeper ensemble, and change them.")
    for name, (run, text, names) in _COMMANDS.items():
        command = top.commands.add_parser(name, help=text, description=text.capitalize() + ".")
        common.add_arguments(command, names, _ARGUMENTS)
        common.add_connection_options(command)
        command.add_argument("--json", action="store_true", help="print JSON, for programs")
        command.set_defaults(run=run, name=name, parser=command)
    return top


def _run(options: argparse.Namespace) -> None:
    # Before the session begins: reading the standard input takes as long as its writer likes.
    if "data" in options:
        options.data = output.data_of_argument(options.data)
    elif options.run is copying.load:
        options.nodes = copying.read_dump()
    asyncio.run(servers.ask(options) if options.run is servers.ask else _ask(options))


async def _ask(options: argparse.Namespace) -> None:
    async with common.connected(options) as zk:
        with common.beside(common.tell_connection(zk, "zkwire")):
            await options.run(zk, options)
