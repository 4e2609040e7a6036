"""An observer that records what it sees."""

import zkwire
from zkwire import SessionState, WatchEventType


class Records(zkwire.Observer):
    """Records everything but pings; of an error its class, and "" if there is none."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str | None, str]] = []
        self.seconds: list[float] = []
        self.events: list[tuple[WatchEventType, str, int | None]] = []
        self.states: list[tuple[SessionState, str]] = []

    def state_changed(self, state: SessionState, server: str) -> None:
        self.states.append((state, server))

    def request_done(self, operation: str, path: str | None, seconds: float, error: Exception | None) -> None:
        if operation != "ping":
            self.requests.append((operation, path, type(error).__name__ if error else ""))
            self.seconds.append(seconds)

    def event_arrived(self, type: WatchEventType, path: str, zxid: int | None) -> None:
        self.events.append((type, path, zxid))
