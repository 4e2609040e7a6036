"""The command break: remove those that hold a lock, one after the other, each after a question on the terminal."""

import argparse
import asyncio
import os
import sys

from recipes.command.show import find
from recipes.common.waiting import bounded
from recipes.line.contenders import Contender
from zkwire import Client, NoAuthError
from zkwire.command import output
from zkwire.command.options import MISUSED, CommandError, connected


async def remove_holders(options: argparse.Namespace) -> None:
    """Remove each holder of the lock at the path, if the answer is yes.

    Raises:
        CommandError: if there is no terminal to ask on, no holder, or if one was kept: the answer was no, or the server
            has refused.
        TimeoutError: if no server answers for as long as a session lasts.
    """
    if not options.yes and (sys.stdin is None or not sys.stdin.isatty()):
        raise CommandError("there is no terminal to ask on: --yes removes the holders without a question", MISUSED)
    async with connected(options) as zk:
        found = await find(zk, options.path)
        holders = [each for each in found.get(options.path, ()) if each.owns]
        if not holders:
            raise CommandError(f"{options.path}: no client holds a lock there")
        kept = [each for each in holders if not await _removed(zk, each, options)]
    if kept:
        raise CommandError(f"{options.path}: {len(kept)} of {len(holders)} not removed")


async def _removed(zk: Client, holder: Contender, options: argparse.Namespace) -> bool:
    """Say who the holder is, and remove it if that is wanted; return whether it is gone."""
    data = output.shown(holder.data.decode(errors="backslashreplace"))
    since = "an unknown time" if holder.since is None else holder.since.isoformat(" ", "seconds")
    output.say(f"{holder.path}: session {holder.session or 'unknown'}, {data or 'without data'}, since {since}")
    if not options.yes and not await _is_confirmed():
        return False
    try:
        async with bounded(zk, zk.session_timeout, f"no server has said that {holder.path} is removed"):
            was_there = await holder.remove()
    except NoAuthError as error:
        output.say(f"zklock: {error}", to=sys.stderr)
        return False
    output.say("removed" if was_there else "it was gone already")
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
