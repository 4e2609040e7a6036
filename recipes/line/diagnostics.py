"""What a wait that ends too late says of the tickets before its own.

Apart from contenders.py, so that a program that only takes locks need not import that.
"""

from contextvars import ContextVar
from typing import Final

from recipes.line import ticket_data
from recipes.line.position import Position
from zkwire import Node, join_path

_LONGEST: Final = 100  # characters of another client's data that an error message shows


def describe_session(session_id: int) -> str:
    """Return a session's id as servers print it."""
    return f"{session_id % 2**64:#x}"


class WaitDiagnostics:
    """What a bounded wait has seen last of the tickets before its own, for the message of its TimeoutError.

    It sends nothing: when very many waits end at once, their messages must not load the server and the event loop.

    Attributes:
        text: The end of the message; empty as long as no ticket has waited.
        nodes: What was read of those tickets, by their names.
    """

    def __init__(self) -> None:
        self.text = ""
        self.nodes: dict[str, Node] = {}


# The present task's, while its wait is bounded: a ticket that ends its wait records there what it has seen.
DIAGNOSTICS: Final[ContextVar[WaitDiagnostics | None]] = ContextVar("DIAGNOSTICS", default=None)


def diagnose_read(name: str, node: Node, position: Position) -> None:
    """Record, in a bounded wait, what was read of the ticket `name`; those that remain before no longer are dropped."""
    if (diagnostics := DIAGNOSTICS.get()) is not None:
        before = position.before
        diagnostics.nodes = {known: its for known, its in diagnostics.nodes.items() if known in before}
        diagnostics.nodes[name] = node


def diagnose_before(path: str, position: Position) -> None:
    """Record, in a bounded wait, which tickets are before the own one in the line at `path`."""
    if (diagnostics := DIAGNOSTICS.get()) is not None:
        diagnostics.text = ""
        if before := position.before:
            first = before[0]
            count = "1 ticket is ahead" if len(before) == 1 else f"{len(before)} tickets are ahead, the first of them"
            node = _describe_node(first, diagnostics.nodes.get(first))
            diagnostics.text = f"; {count}: {join_path(path, first)}{node}"


def _describe_node(name: str, node: Node | None) -> str:
    if node is None:
        return ""
    text = f", of session {describe_session(node.stat.ephemeral_owner)}"
    data = ticket_data.without_line(name, node.data, node.stat.version).decode(errors="replace")
    return f"{text}, {data if len(data) <= _LONGEST else f'{data[:_LONGEST]}...'!r}" if data else text
