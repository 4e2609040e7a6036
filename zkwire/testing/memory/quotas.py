"""Quotas: the subtrees that have one, and the text in which the server counts their nodes and bytes.

A subtree has a quota while a node of limits for it is below /zookeeper/quota; the node of statistics beside that one is
kept up to date by the server.  Limits are not enforced, which is the real server's default.  Knows paths and texts,
not nodes.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

QUOTA_NODE: Final = "/zookeeper/quota"
_LIMITS: Final = "/zookeeper_limits"
_STATISTICS: Final = "/zookeeper_stats"
_PAIR: Final = re.compile(rb"(count|bytes)=(-?\d+)")


def statistics_node(path: str, subtrees: Collection[str]) -> str | None:
    """Return the node that counts changes of `path`: the node of the innermost of the `subtrees` with a quota."""
    while path and path not in subtrees:
        path = path.rpartition("/")[0]
    return QUOTA_NODE + path + _STATISTICS if path else None


def limited_by(path: str) -> str | None:
    """Return the subtree with its limits in the node `path`, None for any other node."""
    return _subtree(path, _LIMITS)


def counted_in(path: str) -> str | None:
    """Return the subtree that is counted in the node `path`, None for any other node."""
    return _subtree(path, _STATISTICS)


def _subtree(path: str, name: str) -> str | None:
    if path.startswith(QUOTA_NODE) and path.endswith(name):
        return path[len(QUOTA_NODE) : -len(name)] or None
    return None


def statistics(count: int, size: int) -> bytes:
    """Return the text for so many nodes with so many bytes of data."""
    return b"count=%d,bytes=%d" % (count, size)


def moved(text: bytes | None, count: int, size: int) -> bytes:
    """Return a text with so many nodes and bytes added; a number that is missing in it counts as -1."""
    found = dict(_PAIR.findall(text or b""))
    return statistics(int(found.get(b"count", -1)) + count, int(found.get(b"bytes", -1)) + size)
