"""Znode paths: validation, joining, chroot in and out, sequence suffixes.  Pure functions of strings.

The rules are those of the Java client's PathUtils, which the server applies to every create (3.5 and newer).
"""

from __future__ import annotations

import re

# U+0001-001F, U+007F-009F, surrogates and the private area behind them, U+FFF0-FFFF; what lies above U+FFFF is
# spelled with surrogates in Java and is refused there for that reason.
_FORBIDDEN = re.compile("[\x01-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff\U00010000-\U0010ffff]")
_PLAIN = re.compile(r"(?:/[A-Za-z0-9_\-]+)+").fullmatch
_SEQUENCE_DIGITS = 10

# Paths that were found good a moment ago: most are used again and again.
_KNOWN: set[str] = set()
_MOST_KNOWN = 1000
_LONGEST_KNOWN = 500


def validate(path: str, *, sequential: bool = False) -> str:
    """Return `path` unchanged if the server would take it as the name of a node.

    Arguments: `path`, absolute, with "/" between names; `sequential`, whether the server will append a number, in
    which case a "/" at the end is allowed.
    Raises: TypeError if it is no str; ValueError, with the value and the rule in it.
    """
    if not isinstance(path, str):
        raise TypeError(f"a path is a str, not {type(path).__name__}: {path!r}")
    if path in _KNOWN:
        return path
    if _PLAIN(path):  # nearly all of them: no need to look at each rule
        if len(_KNOWN) >= _MOST_KNOWN:
            _KNOWN.clear()
        if len(path) <= _LONGEST_KNOWN:  # a test server is sent paths by others: a thousand megabytes are too many
            _KNOWN.add(path)
        return path
    checked = path + "0" if sequential else path
    if not checked.startswith("/"):
        raise ValueError(f"bad path {path!r}: it must start with '/'")
    if checked == "/":
        return path
    if checked.endswith("/"):
        raise ValueError(f"bad path {path!r}: it must not end with '/'")
    if "\x00" in checked:
        raise ValueError(f"bad path {path!r}: it contains NUL")
    for name in checked[1:].split("/"):
        if not name:
            raise ValueError(f"bad path {path!r}: it has an empty name ('//')")
        if name in (".", ".."):
            raise ValueError(f"bad path {path!r}: {name!r} is no name, relative paths do not exist")
    found = _FORBIDDEN.search(checked)
    if found:
        raise ValueError(f"bad path {path!r}: the server refuses the character U+{ord(found.group()):04X}")
    return path


def join(parent: str, name: str) -> str:
    """Return the path of the child `name` of `parent`."""
    return f"/{name}" if parent == "/" else f"{parent}/{name}"


def split(path: str) -> tuple[str, str]:
    """Return the parent of `path` and the name below it; the root is its own parent with an empty name."""
    parent, _, name = path.rpartition("/")
    return parent or "/", name


def ancestors(path: str) -> list[str]:
    """Return every path from just below the root down to `path` itself: "/a/b" gives "/a", "/a/b"."""
    found = []
    at = path.find("/", 1)
    while at > 0:
        found.append(path[:at])
        at = path.find("/", at + 1)
    if path != "/":
        found.append(path)
    return found


def add_chroot(chroot: str, path: str) -> str:
    """Return the server's path of what the client calls `path`; `chroot` is "" for none."""
    if not chroot:
        return path
    return chroot if path == "/" else chroot + path


def strip_chroot(chroot: str, path: str) -> str:
    """Return what the client calls the server's `path`; one that is not below `chroot` stays as it is."""
    if not chroot:
        return path
    if path == chroot:
        return "/"
    return path[len(chroot) :] if path.startswith(chroot + "/") else path


def sequence(name: str) -> int | None:
    """Return the number that the server appended to a sequential node's name, None where there is none.

    The server prints "%010d" of a signed 32-bit counter.  Before 3.6 it ran past 2**31 - 1 into the negative, and
    then the minus sign stands inside the ten places (-000000001) or before them (--2147483648, the first dash being
    the prefix's own).  A single dash before ten digits is taken for a separator.
    """
    digits = name[-_SEQUENCE_DIGITS:]
    if len(digits) < _SEQUENCE_DIGITS or not digits.isascii():
        return None
    if digits.isdigit():
        number = int(digits)
        before = name[:-_SEQUENCE_DIGITS]
        if number >= 10 ** (_SEQUENCE_DIGITS - 1) and before.endswith("-" if number > 2**31 - 1 else "--"):
            number = -number
    elif digits[0] == "-" and digits[1:].isdigit():
        number = int(digits)
    else:
        return None
    return number if -(2**31) <= number < 2**31 else None


def sequence_distance(later: int, earlier: int) -> int:
    """Return how far `later` stands behind `earlier`, negative if it stands before it.

    Serial-number arithmetic on 32 bits: right across the overflow at 2**31 as long as two tickets that stand in
    one line are less than 2**31 apart.
    """
    return (later - earlier + 2**31) % 2**32 - 2**31
