"""Znode paths: validation, joining, chroot in and out, sequence suffixes.  Pure functions of strings.

The rules are those of the Java client's PathUtils, which the server applies to every create (3.5 and newer).
"""

import re

# U+0001-001F, U+007F-009F, surrogates and the private use area after them, U+FFF0-FFFF.  Java spells characters above
# U+FFFF with surrogates, so its check refuses them too.  `re` compiles this when a path is not plain: that takes long.
_FORBIDDEN = "[\x01-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff\U00010000-\U0010ffff]"
_PLAIN = re.compile(r"(?:/[A-Za-z0-9_\-]+)+").fullmatch
_UNIQUE_ID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_SEQUENCE_DIGITS = 10

# Valid paths seen lately: most programs use the same paths again and again.
_VALID: set[str] = set()
_MOST_VALID = 1000
_LONGEST_VALID = 500


def validate(path: str, *, sequential: bool = False) -> str:
    """Return `path` unchanged if the server accepts it as the path of a node.

    Args:
        path: An absolute path, with "/" between names.
        sequential: Whether the server will append a number, in which case a "/" at the end is allowed.

    Returns:
        The path.

    Raises:
        TypeError: If it is not a str.
        ValueError: If it breaks a rule; the message has the path and the rule.
    """
    if not isinstance(path, str):
        raise TypeError(f"a path must be a str, not {type(path).__name__}: {path!r}")
    if path in _VALID:
        return path
    if _PLAIN(path):  # nearly every path: the rules below need not be checked one by one
        if len(_VALID) >= _MOST_VALID:
            _VALID.clear()
        # The in-memory server validates what clients send: a thousand paths of a megabyte each would fill the memory.
        if len(path) <= _LONGEST_VALID:
            _VALID.add(path)
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
            raise ValueError(f"bad path {path!r}: {name!r} is not allowed as a name, there are no relative paths")
    found = re.search(_FORBIDDEN, checked)
    if found:
        raise ValueError(f"bad path {path!r}: the server refuses the character U+{ord(found.group()):04X}")
    return path


def join(parent: str, name: str) -> str:
    """Return the path of the node called `name` below `parent`.

    Args:
        parent: The path of the node above.
        name: One name, without a "/".

    Returns:
        The path.
    """
    return f"/{name}" if parent == "/" else f"{parent}/{name}"


def split(path: str) -> tuple[str, str]:
    """Return the parent's path and the node's own name; the root is its own parent, with an empty name."""
    parent, _, name = path.rpartition("/")
    return parent or "/", name


def ancestors(path: str) -> list[str]:
    """Return every path from just below the root down to `path` itself: "/a/b" gives "/a", "/a/b".

    Args:
        path: An absolute path.

    Returns:
        The paths, the shortest first; none for the root.
    """
    found = []
    at = path.find("/", 1)
    while at > 0:
        found.append(path[:at])
        at = path.find("/", at + 1)
    if path != "/":
        found.append(path)
    return found


def add_chroot(chroot: str, path: str) -> str:
    """Return the path on the server for the client's `path`; `chroot` is "" if there is none."""
    if not chroot:
        return path
    return chroot if path == "/" else chroot + path


def strip_chroot(chroot: str, path: str) -> str:
    """Return the client's path for the server's `path`; a path that is not below `chroot` is returned unchanged."""
    if not chroot:
        return path
    if path == chroot:
        return "/"
    return path[len(chroot) :] if path.startswith(chroot + "/") else path


def has_unique_id(path: str) -> bool:
    """Return whether the last name of `path` contains a UUID, so that no other node has this name."""
    return re.search(_UNIQUE_ID, split(path)[1]) is not None


def sequence(name: str) -> int | None:
    """Return the number that the server appended to a sequential node's name, None if the name has no number.

    The server prints a signed 32-bit counter with "%010d".  Before 3.6 the counter overflows after 2**31 - 1 and
    becomes negative.  The minus sign is then either the first of the ten characters (-000000001) or an eleventh one
    before ten digits (--2147483648, where the first dash belongs to the prefix).  A single dash before ten digits is
    taken for the end of the prefix.

    Args:
        name: The node's own name, or its path.

    Returns:
        The number, from -2**31 to 2**31 - 1, or None.
    """
    digits = name[-_SEQUENCE_DIGITS:]
    if len(digits) < _SEQUENCE_DIGITS or not digits.isascii():
        return None
    if digits.isdigit():
        number = int(digits)
        before = name[:-_SEQUENCE_DIGITS]
        # A prefix may end in a dash of its own: one dash proves nothing, unless the number is too large to be positive.
        if number >= 10 ** (_SEQUENCE_DIGITS - 1) and before.endswith("-" if number > 2**31 - 1 else "--"):
            number = -number
    elif digits[0] == "-" and digits[1:].isdigit():
        number = int(digits)
    else:
        return None
    return number if -(2**31) <= number < 2**31 else None


def sequence_distance(later: int, earlier: int) -> int:
    """Return by how much the sequence number `later` exceeds `earlier`; negative if it is the smaller one.

    This is serial-number arithmetic on 32 bits: the order is right even across the overflow at 2**31, as long as all
    numbers that exist at one time are less than 2**31 apart.

    Args:
        later: A sequence number.
        earlier: Another one.

    Returns:
        The distance, from -2**31 to 2**31 - 1.
    """
    return (later - earlier + 2**31) % 2**32 - 2**31
