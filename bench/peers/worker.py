"""A contestant's program in Python: reads orders, runs them, prints the turns.  See lines.py.

It knows nothing of zkwire, because it also runs in the environments of other clients.
"""

import sys

from bench.peers.lines import DONE, parsed_order, turn_line
from bench.racing import Race, undisturbed


class _Console:
    """The starter of a race on standard input and output."""

    def send(self, obj: object) -> None:
        print(obj, flush=True)

    def recv(self) -> str:
        return sys.stdin.readline()

    def fileno(self) -> int:
        return sys.stdin.fileno()


def serve(contestant: str, race: Race) -> None:
    """Run one race after the other until the end of the standard input."""
    while line := sys.stdin.readline():
        turns = undisturbed(race, parsed_order(line, contestant), _Console())
        print(*map(turn_line, turns), DONE, sep="\n", flush=True)
