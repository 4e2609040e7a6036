"""A job that runs every minute, in one of many processes: the leader of an election runs it.

    python scheduler.py zk1:2181,zk2:2181,zk3:2181

Start it on every host.  When the leader ends, is killed, or loses its connection for too long, the process that has
waited longest goes on.  SIGTERM and Ctrl-C end it: the leader resigns, so the next one leads at once.
"""

import asyncio
import os
import signal
import sys

import zkwire
from recipes import Election

INTERVAL = float(os.environ.get("INTERVAL", "60"))  # in seconds


async def run_job(token: int) -> None:
    """Do the work.  A store that remembers the greatest token refuses a leader that has been replaced."""
    print(f"job of the leader with token {token}", flush=True)


async def main(hosts: str) -> None:
    async with zkwire.connect(hosts) as zk:
        async for term in Election(zk, "/scheduler/leader").terms():
            async with term:  # cancelled when the leadership is lost; the loop then waits for the next term
                while True:
                    await run_job(term.token)
                    await asyncio.sleep(INTERVAL)


async def until_sigterm(hosts: str) -> None:
    """Run `main` in a task that SIGTERM cancels; asyncio.run does the same for Ctrl-C."""
    task = asyncio.create_task(main(hosts))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    await asyncio.wait([task])
    if not task.cancelled():
        task.result()  # raises what `main` has raised


if __name__ == "__main__":
    try:
        asyncio.run(until_sigterm(sys.argv[1]))
    except (TimeoutError, ConnectionError) as error:  # no server to begin with: a supervisor starts the program again
        sys.exit(f"ended: {error!r}")
