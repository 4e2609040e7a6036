"""The connection between a learner (a follower or an observer) and the leader: two ordered streams of messages."""

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from tests.simulation.ensemble.process import Process
from tests.simulation.links import Network, Stream

Message: TypeAlias = tuple[Any, ...]  # its name and its arguments

CLOSED: Final[Message] = ("closed",)


class PeerLink:
    """One connection from a learner to the leader.

    Arguments: `learner` and `leader`, the processes at the ends; `at_leader` and `at_learner`, which take what arrives.
    A connection that one end has closed brings the message ("closed",) to the other, unless that is out of reach.

    `to_leader` sends a message from the learner, `to_learner` one from the leader; `name` is that of the learner.
    """

    def __init__(
        self,
        network: Network,
        learner: Process,
        leader: Process,
        at_leader: Callable[["PeerLink", Message], None],
        at_learner: Callable[["PeerLink", Message], None],
    ) -> None:
        self.name = learner.name
        self.is_closed_by_leader = self.is_closed_by_learner = False
        self._learner, self._leader = learner, leader
        self._at_leader, self._at_learner = at_leader, at_learner
        self._up: Stream[Message] = Stream(network, learner.name, leader.name, self._arrived_up)
        self._down: Stream[Message] = Stream(network, leader.name, learner.name, self._arrived_down)
        self.to_leader, self.to_learner = self._up.send, self._down.send

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

    def _arrived_up(self, message: Message) -> None:
        if not self.is_closed_by_leader:
            if self._leader.is_running:  # as `post` does: half of all that is sent in a run comes here
                self._at_leader(self, message)
            else:
                self._leader.post(self._at_leader, self, message)
        if message is CLOSED:
            self._up.close()

    def _arrived_down(self, message: Message) -> None:
        if not self.is_closed_by_learner:
            if self._learner.is_running:
                self._at_learner(self, message)
            else:
                self._learner.post(self._at_learner, self, message)
        if message is CLOSED:
            self._down.close()
