"""Warnings about nodes that are not a recipe's own: each node is reported once, by its path; a check of members."""

import logging
from typing import Final, TypeGuard

from zkwire import NoAuthError, Node, NoNodeError, ZooKeeperError

# A client that creates such nodes without end must fill neither the log nor the memory.
_MOST_REPORTED: Final = 100
_LONGEST_PATH: Final = 300  # characters of a path that are logged; a server takes names of up to a megabyte


class WarnOnce:
    """Logs a warning about each node at most once, and about a hundred nodes at most.

    Args:
        log: The logger of the recipe's module.
        what: The recipe and its path, which begin each warning.
    """

    def __init__(self, log: logging.Logger, what: str) -> None:
        self._log = log
        self._what = what
        self._reported: set[str] = set()

    def warn(self, path: str, found: str) -> None:
        """Log what was found at `path`, and what the recipe does about it, unless that path was reported before."""
        if path in self._reported or len(self._reported) == _MOST_REPORTED:
            return
        self._reported.add(path)
        shown = path if len(path) <= _LONGEST_PATH else f"{path[:_LONGEST_PATH]}..."
        is_last = len(self._reported) == _MOST_REPORTED
        self._log.warning("%s: %s %s%s", self._what, shown, found, " (no further node is reported)" if is_last else "")

    def is_member(self, node: Node | ZooKeeperError, path: str, consequence: str) -> TypeGuard[Node]:
        """Return whether a node is ephemeral, as a member of a recipe is; warn about one that is not, or is unreadable.

        Args:
            node: What the read of the node at `path` has brought.
            consequence: What the recipe does about another node.

        Raises:
            ZooKeeperError: if the read has failed otherwise than that the node is gone, or may not be read.
        """
        if isinstance(node, Node):
            if node.stat.ephemeral_owner:
                return True
            self.warn(path, f"is not ephemeral, {consequence}")
        elif isinstance(node, NoAuthError):
            self.warn(path, f"may not be read by this client (its ACL), {consequence}")
        elif not isinstance(node, NoNodeError):
            raise node
        return False
