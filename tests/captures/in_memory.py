"""The in-memory server's state machine as a target of the script, without sockets, clock and event loop."""

from collections.abc import Collection

from zkwire.testing.memory.machine import Machine, ServerConnection


class MachineTarget:
    """A state machine as a target; it splits the bytes into frames, as the server around the machine does."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._connections: dict[str, ServerConnection] = {}
        self._now = 0.0

    def open(self, connection: str) -> None:
        port = 40_000 + len(self._connections)
        self._connections[connection] = self._machine.open("127.0.0.1", port, self._tick())

    def send(self, connection: str, data: bytes) -> None:
        to = self._connections[connection]
        while data:
            size = int.from_bytes(data[:4], "big", signed=True)
            if not 0 <= size <= self._machine.settings.max_buffer:
                to.closing = True
                return
            if not to.closing:
                self._machine.receive(to, data[4 : 4 + size], self._tick())
            data = data[4 + size :]

    def drop(self, connection: str) -> None:
        self._machine.lost(self._connections.pop(connection), self._tick())

    def gather(self, connection: str | None, closing: Collection[str]) -> tuple[list[tuple[str, bytes]], list[str]]:
        received = []
        closed = []
        for name, source in self._connections.items():
            received += [(name, frame) for frame in _frames(b"".join(source.outgoing))]
            source.outgoing.clear()
            if source.closing:
                closed.append(name)
        for name in closed:
            self.drop(name)
        return received, sorted(closed)

    def _tick(self) -> float:
        self._now += 0.001
        return self._now


def _frames(data: bytes) -> list[bytes]:
    frames = []
    while data:
        end = 4 + int.from_bytes(data[:4], "big")
        frames.append(data[4:end])
        data = data[end:]
    return frames
