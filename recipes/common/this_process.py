"""What this process is called in the data of its nodes: for people that look for the holder of a lock.

It says the host's name, the process id and the file name of the program.  Arguments of the program are never part of
it, because they may contain passwords, and all clients may read the nodes.
"""

import os
import socket
import sys
from functools import lru_cache
from typing import Final

from recipes.common.checks import checked_data

_LONGEST: Final = 100  # characters of a host's or a program's name


def describe(program: str | None = None) -> bytes:
    """Return this process as "host pid program", for example b"web-1 4711 backup.py".

    Args:
        program: The file name of the program; None for the running one.
    """
    return _describe(os.getpid(), program)


def or_described(data: bytes | None) -> bytes:
    """Return `data`, or the description of this process if it is None.

    Raises:
        TypeError: if it is anything else.
    """
    return describe() if data is None else checked_data(data)


# Made once for each process; a fork has another process id, and so makes it again.
@lru_cache(maxsize=2)
def _describe(pid: int, program: str | None) -> bytes:
    host = "-".join(one_line(socket.gethostname()).split()) or "-"
    words = (host, str(pid), one_line(_running_program() if program is None else program))
    return " ".join(words).encode("utf-8", "backslashreplace")


def _running_program() -> str:
    """Return the file name of the running program; for `python -m package` the name of the package."""
    path = next(iter(getattr(sys, "argv", ())), "")
    folder, name = os.path.split(path)
    if name == "__main__.py":
        name = os.path.basename(folder)
    return name if name and not name.startswith("-") else os.path.basename(sys.executable or "python")


def one_line(text: str) -> str:
    """Return `text` without anything that a terminal would carry out, and not too long."""
    return "".join(each if each.isprintable() else "?" for each in text[:_LONGEST])
