"""A worker with aiohttp: takes items from a queue and posts each to a web service.

    pip install aiohttp
    python mailer.py zk1:2181,zk2:2181,zk3:2181 http://mail.example/send

Any number of processes may run it.  An item whose post fails, or whose process dies, goes back to its place in the
queue.  So an item may be posted twice: its name is sent as a key, by which the web service can recognise it.
"""

import asyncio
import signal
import sys

import aiohttp

import zkwire
from recipes import LockLostError, Queue

TASKS = 8


async def post_items(queue: Queue, http: aiohttp.ClientSession, url: str) -> None:
    """Post one item after the other, without end."""
    while True:
        try:
            async with queue.claim() as item:  # hidden from other consumers; deleted when the body ends well
                key = item.entry.rpartition("/")[2]
                async with http.post(url, data=item.data, headers={"Idempotency-Key": key}) as answer:
                    answer.raise_for_status()
        except aiohttp.ClientError as error:
            print(f"posted later: {error}", flush=True)
            await asyncio.sleep(1.0)
        except (LockLostError, zkwire.ZooKeeperError) as error:
            print(f"another consumer may post the same item: {error}", flush=True)
            await asyncio.sleep(1.0)


async def main(hosts: str, url: str) -> None:
    async with (
        zkwire.connect(hosts) as zk,
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30)) as http,
        asyncio.TaskGroup() as tasks,
    ):
        queue = Queue(zk, "/mailer/queue")
        for _ in range(TASKS):
            tasks.create_task(post_items(queue, http, url))


async def until_sigterm(hosts: str, url: str) -> None:
    """Run `main` in a task that SIGTERM cancels: the items that are claimed go back to the queue."""
    task = asyncio.create_task(main(hosts, url))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    await asyncio.wait([task])
    if not task.cancelled():
        task.result()


if __name__ == "__main__":
    try:
        asyncio.run(until_sigterm(*sys.argv[1:]))
    except (TimeoutError, ConnectionError) as error:  # no server to begin with: a supervisor starts the program again
        sys.exit(f"ended: {error!r}")
