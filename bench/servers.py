"""The servers that a measurement uses: the command line's options for them, and a server that lives for one run."""

import argparse
import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from bench import rawline
from zkwire.session.hosts import Address, parse
from zkwire.testing import RealServer, ServerProcess, ZooKeeperMissingError

ROOT: Final = Path(__file__).resolve().parents[1]


def add_server_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that `serving` reads."""
    where = parser.add_mutually_exclusive_group()
    hosts = "servers to use (default: an in-memory one)"
    where.add_argument("--hosts", type=_hosts, metavar="HOST:PORT,...", help=hosts)
    where.add_argument("--real", action="store_true", help="start a real ZooKeeper")
    where.add_argument(
        "--no-fsync", action="store_true", help="start a real ZooKeeper that does not force its log to disk"
    )


def write_json(options: argparse.Namespace, report: object) -> None:
    """Write the report into the file that `--json` names, if it names one."""
    if options.json:
        options.json.write_text(json.dumps(report, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def positive(text: str) -> int:
    """Return the number above 0 that `text` contains; the type of a command line's option."""
    if not (text.isascii() and text.isdigit() and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0")
    return int(text)


def _hosts(text: str) -> str:
    try:
        parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


def fetch_zookeeper() -> None:
    """Fetch a real ZooKeeper if there is none.

    Raises:
        ZooKeeperMissingError: if it cannot be fetched.
    """
    fetch = [sys.executable, "-m", "zkwire.testing.fetch", "--if-missing"]
    if subprocess.run(fetch, cwd=ROOT, stdout=sys.stderr, check=False).returncode:
        raise ZooKeeperMissingError("no real server can be started here")


@contextlib.contextmanager
def serving(options: argparse.Namespace) -> Iterator[str]:
    """Give the connect string of the servers: the named ones, or one that lives as long as the ``with`` block."""
    if options.hosts is not None:
        yield options.hosts
        return
    if not (options.real or options.no_fsync):
        with ServerProcess() as memory:
            yield memory.hosts
        return
    fetch_zookeeper()
    server = RealServer(tick_time=2.0, jvm=(), fsync=not options.no_fsync)
    try:
        asyncio.run(server.start())
        yield server.hosts
    finally:
        asyncio.run(server.close())


@contextlib.contextmanager
def scratch(server: Address, folder: str) -> Iterator[None]:
    """Create the node `folder` for one run, and remove it at the end with all below it."""
    with rawline.RawSession(*server) as session:
        rawline.make_path(session, folder)
    try:
        yield
    finally:
        with rawline.RawSession(*server) as session:
            rawline.remove_tree(session, folder)


def kind_of(options: argparse.Namespace) -> str:
    """Return what a heading says about the servers after their addresses."""
    return "" if options.hosts or options.real else ", without fsync" if options.no_fsync else ", in-memory server"


def say(text: str) -> None:
    """Print progress or a failure to stderr."""
    print(text, file=sys.stderr, flush=True)
