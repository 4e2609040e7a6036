"""A pytest plugin for tests of changed code: more memory than this fails with MemoryError, in each process."""

import resource
from typing import Final

MOST: Final = 3 * 1024**3  # bytes of address space


def pytest_configure() -> None:
    """Set the limit."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST, MOST))
