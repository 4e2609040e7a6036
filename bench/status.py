"""How a program of this folder ends when something could not be measured."""

import functools
import inspect
import subprocess
from collections.abc import Callable, Sequence
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


def with_status(main: Callable[[Sequence[str] | None], int]) -> Callable[..., int]:
    """Make `main` return 2, and print the reason, if something could not be measured, and 130 for Ctrl-C."""
    program = Path(inspect.getfile(main)).resolve().relative_to(ROOT)

    @functools.wraps(main)
    def main_with_status(arguments: Sequence[str] | None = None) -> int:
        try:
            return main(arguments)
        except _REASONS as error:
            say(f"{program}: {error}")
            return 2
        except subprocess.CalledProcessError:
            return 2  # the command has printed the reason
        except KeyboardInterrupt:
            return 130

    return main_with_status
