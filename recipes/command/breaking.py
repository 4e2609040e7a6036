"""The command break: remove those that hold a lock, one after the other, each after a question on the terminal."""

import argparse
import asyncio
import os
import sys

from recipes.command.show import find
from recipes.line.contenders import Contender
from zkwire.command import output
from zkwire.command.options import MISUSED, CommandError, connected


async def remove_holders(options: argparse.Namespace) -> None:
    """Remove each holder of the lock at the path, if the answer is yes.

    Raises:
        CommandError: if there is no terminal to ask on, no holder, or an answer that is no.
    """
    if not options.yes and (sys.stdin is None or not sys.stdin.isatty()):
        raise CommandError("there is no terminal to ask on: --yes removes the holders without a question", MISUSED)
    async with connected(options) as zk:
        found = await find(zk, options.path)
        holders = [each for each in found.get(options.path, ()) if each.owns]
        if not holders:
            raise CommandError(f"{options.path}: no client holds a lock there")
        kept = [each for each in holders if not await _removed(each, options)]
    if kept:
        raise CommandError(f"{options.path}: {len(kept)} of {len(holders)} not removed")


async def _removed(holder: Contender, options: argparse.Namespace) -> bool:
    """Say who the holder is, and remove it if that is wanted; return whether it is gone."""
    data = output.shown(holder.data.decode(errors="backslashreplace"))
    since = "an unknown time" if holder.since is None else holder.since.isoformat(" ", "seconds")
    output.say(f"{holder.path}: session {holder.session or 'unknown'}, {data or 'without data'}, since {since}")
    if not options.yes and not await _is_confirmed():
        return False
    output.say("removed" if await holder.remove() else "it was gone already")
    return True


async def _is_confirmed() -> bool:
    """Return whether the next line of the terminal is a yes; the session lives on while that is awaited."""
    print("remove it? [y/N] ", end="", file=sys.stderr, flush=True)
    loop, descriptor, is_there = asyncio.get_running_loop(), sys.stdin.fileno(), asyncio.Event()
    loop.add_reader(descriptor, is_there.set)
    try:
        await is_there.wait()
    finally:
        loop.remove_reader(descriptor)
    return os.read(descriptor, 1024).strip().lower() in (b"y", b"yes")
