"""Paths of nodes below another one."""

from __future__ import annotations


def child(path: str, name: str) -> str:
    """Return the path of the child `name` of the node at `path`, which may be the root."""
    return f"/{name}" if path == "/" else f"{path}/{name}"
