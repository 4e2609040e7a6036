"""What is rare and dangerous: a run records it, and the share of schedules that had it is printed at the end."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.simulation.ensemble.history import ClientConnection
from tests.simulation.ensemble.server import SimulatedServer

if TYPE_CHECKING:
    from tests.simulation.stage import Stage

_LOOK_EVERY = 1.0  # seconds


class Rare:
    """Records what is rare in `seen`: looks again and again at all bodies, and at each handshake."""

    def __init__(self, stage: "Stage", seen: set[str]) -> None:
        self._stage, self._seen = stage, seen
        self._epoch = 0
        self._held: set[int] = set()  # sessions in which something was held
        self._certain: dict[Any, bool] = {}  # each body at the last look, and whether its lease was certain
        for server in stage.ensemble.servers:
            server.admit = self._admitting(server)  # type: ignore[method-assign]
        self._look()

    def _look(self) -> None:
        stage, seen, before = self._stage, self._seen, self._certain
        stage.world.after(_LOOK_EVERY, self._look)
        ensemble = stage.ensemble
        if sum(server.is_up for server in ensemble.servers if server.is_voter) < ensemble.election.quorum:
            seen.add("no quorum of servers is up")
        found = ensemble.leader()
        epoch = self._epoch if found is None else found[1].epoch
        self._certain = self._certainties()
        for holder, is_certain in self._certain.items():
            if is_certain:
                self._held.add(holder.session_id)
            if epoch != self._epoch and is_certain and before.get(holder):
                seen.add("a leader changes under a certain lease")
        self._epoch = epoch

    def _certainties(self) -> dict[Any, bool]:
        return {holder: is_certain for guard in self._stage.guards for holder, is_certain in guard.certainties()}

    def _admitting(self, server: SimulatedServer) -> Callable[..., None]:
        admit, seen = server.admit, self._seen

        def noting(client: ClientConnection, *, is_valid: bool) -> None:
            if not is_valid:
                bodies = [holder for holder in self._certainties() if holder.session_id == client.session_id]
                seen.add("a session is gone when its client returns" + (", with a body inside" if bodies else ""))
            elif self._has_lapsed(client.session_id):
                seen.add("a session goes on after its certainty has ended, and something was held in it")
            elif client.session_id not in server.replica.sessions.by_id:
                seen.add("a server does not know the session that it lets in")
            admit(client, is_valid=is_valid)

        return noting

    def _has_lapsed(self, session_id: int) -> bool:
        for player in self._stage.players if session_id in self._held else ():
            if getattr(player, "zk", None) is not None and player.zk.session_id == session_id:
                with player.machine.inside():
                    return player.zk.certain_for(session_id) <= 0
        return False
