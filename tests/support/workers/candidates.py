"""A process with several candidates, for trials of elections; it imports little, because it is started often."""

import asyncio
import fcntl
from typing import Any

import zkwire
from recipes import Election
from tests.support.processes import report
from zkwire import Client


def session_of(name: str, zk: Client) -> dict[str, Any]:
    """Return what a test needs to end the session of a candidate."""
    return {"name": name, "session": zk.session_id, "password": zk.session_password.hex()}


async def run_candidates(hosts: str, path: str, witness: str, names: list[str], timeout: float) -> None:
    """Run one candidate for each name, each with a session of its own, until the node `path`-stop exists.

    The leader holds a flock on the witness file, which the kernel releases when the process is killed.  A leader that
    finds it taken reports an overlap: there are two leaders at once.
    """

    async def candidate(name: str) -> None:
        async with zkwire.connect(hosts, timeout) as zk:
            report("candidate", **session_of(name, zk))
            async for term in Election(zk, path, name.encode()).terms():
                async with term:
                    with open(witness, "rb") as file:
                        try:
                            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        except BlockingIOError:
                            report("overlap", name=name)
                        report("leading", token=term.token, **session_of(name, zk))
                        await asyncio.Event().wait()
                report("lost", name=name)

    async with zkwire.connect(hosts, 10.0) as zk:
        candidates = [asyncio.create_task(candidate(name)) for name in names]
        async for node in zk.data(f"{path}-stop"):
            if node is not None:
                break
        for task in candidates:
            task.cancel()
        await asyncio.wait(candidates)
