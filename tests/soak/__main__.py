"""`python -m tests.soak`: does anything grow while a process uses the client for a long time?

Locks, watches, queues and other recipes, with cancelled calls, lost connections and expired sessions, on one real
server.  Prints a table of memory, tasks and descriptors of this process and of the watches and nodes of the server.
The exit status is 1 when one of them has grown.
"""

import argparse
import asyncio
import logging
import random
import signal
import sys
from typing import Final

from tests.soak import leaks
from tests.soak.measure import head, row, verdict
from tests.soak.soak import soak
from zkwire.testing import RealServer

SAMPLES: Final = 30


def main() -> int:
    """Return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="for how long (default: 10)")
    parser.add_argument("--seed", default=None, help="of the work; a run prints its seed")
    parser.add_argument("--leak", choices=sorted(leaks.LEAKS), help="leave something on purpose")
    options = parser.parse_args()
    logging.disable()  # what clients say of lost connections would tear the table apart
    try:
        return asyncio.run(_main(60 * options.minutes, options.seed, options.leak))
    except (KeyboardInterrupt, asyncio.CancelledError):
        return 2


async def _main(seconds: float, seed: str | None, leak: str | None) -> int:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    seed = seed or f"{random.randrange(1 << 32):08x}"
    print(f"seed {seed}\n{head()}", flush=True)
    samples = []
    try:
        async with RealServer(fsync=False) as server:
            async for found in soak(
                server, seed, seconds=seconds, every=seconds / SAMPLES, leaks=[leak] if leak else []
            ):
                samples.append(found)
                print(row(found), flush=True)
    finally:
        await leaks.stop()
    grown = verdict(samples)
    print("\n".join(["grown:", *grown]) if grown else "nothing has grown", flush=True)
    return 1 if grown else 0


if __name__ == "__main__":
    sys.exit(main())
