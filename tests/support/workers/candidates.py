"""A process full of candidates, for trials of elections; it imports little, for it is started often."""

import asyncio
import fcntl

import zkwire
from recipes import Election
from tests.support.processes import report


async def stand(hosts: str, path: str, witness: str, names: list[str], timeout: float) -> None:
    """In a process: stand as so many candidates, each with a session of its own, until the node `path`-stop is there.

    Whoever leads holds a flock on the witness file, which the kernel takes back from a process that is killed: to find
    it taken is to have seen two leaders at a time.
    """

    async def candidate(name: str) -> None:
        async with zkwire.connect(hosts, timeout) as zk:
            report("ticket", name=name, session=zk.session_id, password=zk.session_password.hex())
            async for term in Election(zk, path, name.encode()).terms():
                async with term:
                    with open(witness, "rb") as file:
                        try:
                            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        except BlockingIOError:
                            report("overlap", name=name)
                        report(
                            "leading", name=name, token=term.token,
                            session=zk.session_id, password=zk.session_password.hex(),
                        )  # fmt: skip
                        await asyncio.Event().wait()
                report("lost", name=name)

    async with zkwire.connect(hosts, 10.0) as zk:
        ticket = [asyncio.create_task(candidate(name)) for name in names]
        async for node in zk.data(f"{path}-stop"):
            if node is not None:
                break
        for task in ticket:
            task.cancel()
        await asyncio.wait(ticket)
