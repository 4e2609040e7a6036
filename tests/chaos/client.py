"""A client process of a run: `python -m tests.chaos.client ORDERS`, where ORDERS is JSON, see `Orders`.

It works until its standard input ends, then closes its session and ends.  So it also ends when its parent has gone.
A line of standard input is a number of seconds: for so long the client keeps what it holds and begins nothing.
"""

import asyncio
import json
import logging
import os
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import zkwire
from tests.chaos.broken import put_in
from tests.chaos.journal import Journal
from tests.chaos.store import Store
from tests.chaos.workload import HoldOn, Workload


@dataclass(frozen=True)
class Orders:
    """What a client is to do.

    Args:
        number: Of the client.
        life: How often it was started.
        hosts: Its connect string.
        timeout: Of its session, in seconds.
        seed: Of its choices.
        folder: Of the journals.
        broken: The deliberate faults to put in.
    """

    number: int
    life: int
    hosts: str
    timeout: float
    seed: str
    folder: str
    broken: Sequence[str] = ()


async def main(orders: Orders) -> None:
    """Work until standard input ends."""
    author = f"{orders.number}.{orders.life}"
    journal = Journal(Path(orders.folder, f"client-{author}.jsonl"), author)
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    hold_on = HoldOn()
    finishing = asyncio.create_task(_obey(lines, hold_on))
    working = asyncio.create_task(_work(orders, journal, author, hold_on))
    await asyncio.wait([finishing, working], return_when=asyncio.FIRST_COMPLETED)
    for task in (finishing, working):
        task.cancel()
    await asyncio.wait([finishing, working])
    if not working.cancelled():
        working.result()  # it has failed, and says how
        raise AssertionError("the work has no end")
    journal.write("ends")


async def _obey(lines: asyncio.StreamReader, hold_on: HoldOn) -> None:
    """Return when there is nothing more to read."""
    while line := await lines.readline():
        hold_on.begin(float(line))


async def _work(orders: Orders, journal: Journal, author: str, hold_on: HoldOn) -> None:
    rng = random.Random(f"{orders.seed}/{author}")
    names = random.Random(f"{orders.seed}/{author}/client")
    store = Store(Path(orders.folder), author)
    async with zkwire.connect(orders.hosts, orders.timeout, rng=names, within=None) as zk:
        journal.write("connected", pid=os.getpid(), session=zk.session_id, timeout=zk.session_timeout)
        await Workload(zk, store, journal, author, rng, hold_on).run()


if __name__ == "__main__":
    given = Orders(**json.loads(sys.argv[1]))
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    for fault in given.broken:
        put_in(fault)
    asyncio.run(main(given))
