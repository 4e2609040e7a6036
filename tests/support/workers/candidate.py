"""A process with a candidate, for the trial of an election."""

import asyncio
import fcntl

import zkwire
from recipes import Election
from tests.support.processes import report


async def run_candidate(hosts: str, path: str, witness: str, name: str, timeout: float) -> None:
    """Run a candidate until the node `path`-stop exists.

    The leader holds a flock on the witness file, which the kernel releases when the process is killed.  A leader that
    finds it taken reports an overlap: there are two leaders at once.
    """

    async def candidate() -> None:
        async for term in Election(zk, path, name.encode()).terms():
            async with term:
                with open(witness, "rb") as file:
                    try:
                        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    except BlockingIOError:
                        report("overlap", name=name)
                    report("leading", token=term.token)
                    await asyncio.Event().wait()
            report("lost", name=name)

    async with zkwire.connect(hosts, timeout) as zk:
        running = asyncio.create_task(candidate())
        async for node in zk.data(f"{path}-stop"):
            if node is not None:
                break
        running.cancel()
        await asyncio.wait([running])
