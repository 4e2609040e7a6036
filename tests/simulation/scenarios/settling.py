"""What scenarios need that look at everything at the end: the moment at which nothing more is done or goes wrong."""

import asyncio

import zkwire
from tests.simulation.stage import Player, Stage

_LOOK_EVERY = 0.5  # seconds


class Settling:
    """Waits until all faults are over and all players have done their steps."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._done = 0

    async def wait(self) -> None:
        """Wait for that moment; to be called once by each player, first of all in `finish`."""
        stage = self._stage
        self._done += 1
        while self._done < len(stage.players) or stage.world.now < stage.schedule.calm:
            await asyncio.sleep(_LOOK_EVERY)


def is_passing(error: zkwire.ZooKeeperError) -> bool:
    """Return whether `error` is one that faults lead to, so that a step may end with it."""
    if isinstance(error, zkwire.ServerError):
        return error.is_transient
    return isinstance(error, zkwire.ConnectionLostError | zkwire.SessionExpiredError)


async def synced(player: Player, path: str) -> None:
    """Wait until the player's server has all that was written before.

    By a transaction that changes nothing, and not by a sync: a leader that was cut off answers syncs for up to a tick
    after the others have elected a new one.
    """
    while True:
        transaction = player.zk.transaction()
        transaction.check(path)
        try:
            await transaction.commit()
        except zkwire.TransactionError as refused:
            if not isinstance(refused.cause, zkwire.NoNodeError):
                raise
            return
        except zkwire.ZooKeeperError as error:
            if not is_passing(error):
                raise
            await asyncio.sleep(_LOOK_EVERY)
        else:
            return
