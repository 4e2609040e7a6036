"""The connection between a learner (a follower or an observer) and the leader: two ordered streams of messages."""

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from tests.simulation.links import Network, Stream

Message: TypeAlias = tuple[Any, ...]  # its name and its arguments

CLOSED: Final[Message] = ("closed",)


class PeerLink:
    """One connection from a learner to the leader.

    Arguments: `at_leader` and `at_learner`, which take what arrives at either end.  A connection that one end has
    closed brings the message ("closed",) to the other, unless that is out of reach.
    """

    def __init__(
        self,
        network: Network,
        learner: str,
        leader: str,
        at_leader: Callable[["PeerLink", Message], None],
        at_learner: Callable[["PeerLink", Message], None],
    ) -> None:
        self.learner = learner
        self.is_closed_by_leader = self.is_closed_by_learner = False
        self._at_leader, self._at_learner = at_leader, at_learner
        self._up: Stream[Message] = Stream(network, learner, leader, self._to_leader)
        self._down: Stream[Message] = Stream(network, leader, learner, self._to_learner)

    def send_to_leader(self, *message: Any) -> None:
        """Send a message from the learner."""
        self._up.send(message)

    def send_to_learner(self, *message: Any) -> None:
        """Send a message from the leader."""
        self._down.send(message)

    def close_by_leader(self) -> None:
        """Close the leader's end."""
        if not self.is_closed_by_leader:
            self.is_closed_by_leader = True
            self._down.send(CLOSED)

    def close_by_learner(self) -> None:
        """Close the learner's end."""
        if not self.is_closed_by_learner:
            self.is_closed_by_learner = True
            self._up.send(CLOSED)

    def _to_leader(self, message: Message) -> None:
        if not self.is_closed_by_leader:
            self._at_leader(self, message)
        if message is CLOSED:
            self._up.close()

    def _to_learner(self, message: Message) -> None:
        if not self.is_closed_by_learner:
            self._at_learner(self, message)
        if message is CLOSED:
            self._down.close()
