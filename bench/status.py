"""How a program of this folder ends when something could not be measured."""

import contextlib
import functools
import inspect
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import zkwire
from bench.crew import WorkerFailedError
from bench.frames import RefusedError
from bench.servers import ROOT, say
from zkwire.testing import ServerFailedError, ZooKeeperMissingError

_REASONS = (
    WorkerFailedError,
    ServerFailedError,
    ZooKeeperMissingError,
    RefusedError,
    zkwire.ZooKeeperError,
    OSError,
)


class _TerminatedError(BaseException):
    """SIGTERM has come."""


@contextlib.contextmanager
def _interrupted_by_sigterm() -> Iterator[None]:
    def interrupt(number: int, frame: object) -> None:
        raise _TerminatedError

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def with_status(main: Callable[[Sequence[str] | None], int]) -> Callable[..., int]:
    """Make `main` return 2, and print the reason, if something could not be measured, and 130 for Ctrl-C.

    On SIGTERM it ends with the servers and processes that it has started, and returns 143.
    """
    program = Path(inspect.getfile(main)).resolve().relative_to(ROOT)

    @functools.wraps(main)
    def main_with_status(arguments: Sequence[str] | None = None) -> int:
        try:
            with _interrupted_by_sigterm():
                return main(arguments)
        except _REASONS as error:
            say(f"{program}: {error}")
            return 2
        except subprocess.CalledProcessError:
            return 2  # the command has printed the reason
        except KeyboardInterrupt:
            return 130
        except _TerminatedError:
            return 128 + signal.SIGTERM

    return main_with_status
