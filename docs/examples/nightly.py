"""A job that cron starts on every host at the same minute, and that one of them carries out.

    0 3 * * *  python nightly.py zk1:2181,zk2:2181,zk3:2181

The exit status is 0 if the job was done, here or on another host, and 1 with a line on stderr if it may not have been.
"""

import asyncio
import datetime
import os
import sys

import zkwire
from recipes import Lock, LockLostError

SECONDS = float(os.environ.get("SECONDS", "1"))  # how long the work takes
LONGEST = float(os.environ.get("LONGEST", "3600"))  # how long a late host waits for the one that does it


async def run_job(day: str) -> None:
    """Do the work.  It is cancelled when the lock is lost, before another host can begin it."""
    print(f"the job of {day} begins", flush=True)
    await asyncio.sleep(SECONDS)


async def main(hosts: str) -> None:
    day = datetime.date.today().isoformat()
    # Without a limit, an ensemble that is down for days would collect the processes of each night.
    async with zkwire.connect(hosts) as zk, Lock(zk, "/nightly/lock").hold(within=LONGEST) as lease:
        if await zk.exists(f"/nightly/{day}"):
            return
        await run_job(day)
        async with lease.transaction() as tx:  # carried out only while the lock is ours
            tx.create(f"/nightly/{day}", b"")
        print(f"the job of {day} is done", flush=True)


if __name__ == "__main__":
    try:
        asyncio.run(main(sys.argv[1]))
    except (LockLostError, zkwire.ZooKeeperError, TimeoutError, ConnectionError) as error:
        sys.exit(f"the job may not have been done: {error}")
