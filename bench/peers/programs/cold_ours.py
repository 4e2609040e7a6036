"""A whole program that takes a lock twice: `cold_ours.py HOST:PORT`; see bench/coldstart.py."""

import asyncio
import sys

from recipes import Lock
from zkwire import connect


async def main() -> None:
    """Connect, make the lock's node, take the lock twice, and close."""
    async with connect(sys.argv[1]) as zk:
        await zk.ensure_path("/cold")
        for _ in range(2):
            lease = await Lock(zk, "/cold/lock").acquire()
            await lease.release()


asyncio.run(main())
