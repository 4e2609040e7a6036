"""Which tickets are readers', by their names.

Pure: knows names.  What a reader waits for is said in position and read_write_lock.
"""

from __future__ import annotations

from typing import Final

# Both prefixes are Curator's, so that Curator's read/write lock can use the same path.
READ_PREFIX: Final = "__READ__"
WRITE_PREFIX: Final = "__WRIT__"
_READERS: Final = (READ_PREFIX, "__rlock__")  # the second one is kazoo's


def is_writer(name: str) -> bool:
    """Return whether the ticket `name` counts as a writer's: true unless its name has the form of a reader's ticket."""
    return not any(reader in name for reader in _READERS)
