"""The client processes of a run, as the parent process sees them."""

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from tests.chaos.client import Orders
from tests.chaos.journal import Journal

ROOT = Path(__file__).resolve().parents[2]
POLL = 0.05


class ClientProcess:
    """One client: a process that may be killed, stopped and started again; each start is another life.

    Args:
        orders: Of its first life.
        journal: The parent's.
        home: The number of the only server that it knows, None if it knows all.
    """

    def __init__(self, orders: Orders, journal: Journal, home: int | None = None) -> None:
        self._orders = orders
        self.home = home
        self._journal = journal
        self._lives = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def number(self) -> int:
        """Its number, which its lives share."""
        return self._orders.number

    @property
    def is_running(self) -> bool:
        """Whether there is a process; a stopped one counts."""
        return self._process is not None and self._process.poll() is None

    @property
    def name(self) -> str:
        """The number with the number of the life, as in the journals."""
        return f"{self.number}.{self._lives}"

    def start(self) -> None:
        """Start the next life."""
        assert not self.is_running
        self._lives += 1
        orders = json.dumps({**asdict(self._orders), "life": self._lives})
        with Path(self._orders.folder, f"client-{self.name}.log").open("wb") as log:
            # A session of its own: Ctrl-C at the terminal reaches the parent, which then ends its clients.
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.chaos.client", orders],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def kill(self) -> None:
        """Kill the process, if there is one; it has ended when this returns."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert self._process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
            self._process = None

    def pause(self) -> None:
        """Stop the process (SIGSTOP)."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue a stopped process."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def hold_on(self, seconds: float) -> None:
        """Have it keep what it holds for so long, and begin nothing; a process that does not run is left alone."""
        if self._process is not None:
            assert self._process.stdin is not None
            with contextlib.suppress(BrokenPipeError):  # it has failed: `fails` will say so
                self._process.stdin.write(b"%f\n" % seconds)
                self._process.stdin.flush()

    def fails(self) -> bool:
        """Return whether the process has ended by itself, and write that down."""
        if self._process is None or self._process.poll() is None:
            return False
        log = Path(self._orders.folder, f"client-{self.name}.log").read_text(encoding="utf-8", errors="replace")
        why = f"it ended with {self._process.returncode}: {' | '.join(log.splitlines()[-3:])}"
        self._journal.write("failed", name="", client=self.name, why=why)
        self.kill()
        return True

    async def finish(self, limit: float) -> None:
        """Have the process end its work and its session; write it down if it does not within `limit` seconds."""
        process = self._process
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(limit):
                while process.poll() is None:
                    await asyncio.sleep(POLL)
        except TimeoutError:
            self._journal.write("failed", name="", client=self.name, why=f"it did not end within {limit:g} s")
            self.kill()
        if process.returncode and self._process is not None:
            self.fails()


def end(number: int) -> str:
    """The end of the links of a client."""
    return f"client {number}"
