"""The in-memory server as a child process: for programs without an event loop, and for measurements.

Knows how to start `python -m zkwire.testing` and how to read the port that it listens on.
"""

import os
import re
import subprocess
import sys
from typing import Final, Self

from zkwire.testing.memory.state import Settings
from zkwire.testing.real.server import ServerFailedError

_END_TIME_LIMIT: Final = 10.0
_GREETING: Final = re.compile(r"\S+:\d+(?=;)")


class ServerProcess:
    """An in-memory Server in a process of its own, on a free loopback port.

        with ServerProcess() as server:
            ... server.hosts ...

    It ends with the `with` block, by `close`, and with the process that made it, however that process ends.

    Args:
        tick_time: The server's tick in seconds.
        max_session_timeout: The longest session timeout in seconds; 20 ticks when None.

    Raises:
        ServerFailedError: if it does not start.
        ValueError: if no server can have these settings.
        TypeError: if one of them has the wrong type.
        NotImplementedError: on Windows.
    """

    def __init__(self, *, tick_time: float = 2.0, max_session_timeout: float | None = None) -> None:
        Settings(tick_time, max_session_timeout=max_session_timeout)  # raises if no server can have them
        if os.name != "posix":
            raise NotImplementedError("the in-memory server runs as a process on Linux and macOS only: use Server")
        options = ["--port", "0", "--tick-time", str(tick_time), "--with-stdin"]
        if max_session_timeout is not None:
            options += ["--max-session-timeout", str(max_session_timeout)]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "zkwire.testing", *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        greeting = self._process.stdout.readline()
        found = _GREETING.search(greeting)
        if found is None:
            self.close()
            raise ServerFailedError(f"the in-memory server ended with {self._process.returncode}; see its output")
        self.hosts: str = found[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process; a second call does nothing."""
        if self._process.returncode is not None:
            return
        try:
            # Closing its input is not enough: a process that was forked from this one may have the other end, too.
            self._process.terminate()
            self._process.communicate(timeout=_END_TIME_LIMIT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
            raise
