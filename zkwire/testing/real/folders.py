"""The folders of test servers: private ones, which the next start removes if their owner was killed.

A folder may hold passwords, so it must not stay for ever.  Each contains a file that its owner has locked.  The server
inherits the lock, and the system ends it with the last of both processes, however these end.  So a folder
with a free lock has no owner.  Knows nothing of servers.
"""

import contextlib
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

if sys.platform != "win32":  # where no server is started; see RealServer
    import fcntl

_PREFIX: Final = "zookeeper-"
_LOCK: Final = "owner.lock"


class OwnFolder:
    """A new folder that only this user may read, and its lock.

    `path` is the folder; `lock` is a file descriptor to pass on to the processes that use it.
    """

    def __init__(self) -> None:
        _remove_abandoned()
        self.path: Path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        # Locked before it gets its name: another process that looks for abandoned folders must not find it free.
        unnamed = self.path / "new.lock"
        self.lock: int = os.open(unnamed, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        unnamed.rename(self.path / _LOCK)

    def remove(self) -> None:
        """Remove the folder and let the lock go."""
        shutil.rmtree(self.path)
        os.close(self.lock)


def _remove_abandoned() -> None:
    """Remove the folders of this user that an owner and its server have left at their end."""
    for lock_file in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*/{_LOCK}"):
        # An error says that it is in use, that its owner or another start removes it now, or that it is none of ours.
        with contextlib.suppress(OSError):
            if lock_file.parent.lstat().st_uid == os.getuid():
                with open(lock_file, "r+b", opener=lambda path, flags: os.open(path, flags | os.O_NOFOLLOW)) as lock:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(lock_file.parent)
