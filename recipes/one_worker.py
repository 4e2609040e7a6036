"""Run something in one worker only, of all that are started for it: an election whose candidates say who they are."""

from collections.abc import Sequence

from recipes.common.this_process import or_described
from recipes.election import Election
from zkwire import ACL, Client


def only_one(zk: Client, path: str, *, data: bytes | None = None, acl: Sequence[ACL] | None = None) -> Election:
    """Run this in one worker only: while the body runs, no other worker's does; when it ends, another one's begins.

    ::

        async def beat(term):                       # cancelled when the turn is lost
            async with the_scheduler(): ...         # the body ends after all that it has begun

        await only_one(zk, "/beat").run(beat)       # in every worker; after a loss it waits for another turn
        async with only_one(zk, "/beat") as term:   # one turn; its loss raises LockLostError
            ...

    Each worker waits until it has the turn.  So one that has other work to do, such as serving requests, awaits this in
    a task of its own.  What Election says of exceptions holds here, too: for a body that ignores its cancellation, a
    blocked event loop, and clocks at different speeds there is `term.token`.  For a program without asyncio
    there is the command `zklock elect`.

    Args:
        path: The election's node, created as a container if it is missing, with persistent parents.
        data: Shown to observers while this worker has the turn; None: the host, the process id and the file name of the
            program, such as b"web-1 4711 uvicorn".
        acl: The same as in Lock.

    Returns:
        The election, with all its methods: `leader()` says whose turn it is.
    """
    return Election(zk, path, or_described(data), acl=acl)
