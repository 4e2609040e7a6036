"""The whole script: its themes by name, in the order of recording ("fresh" must be the first on a new server)."""

from collections.abc import Callable

from tests.captures.play import Player, Recording, Target
from tests.captures.script import access, nodes, quotas, sessions, transactions, watches

THEMES: dict[str, Callable[[Player], None]] = {
    theme.__name__: theme
    for theme in (
        sessions.fresh,
        sessions.handshake,
        sessions.closing,
        sessions.framing,
        nodes.creates,
        nodes.refused_creates,
        nodes.writes,
        nodes.reads,
        access.acls,
        access.permissions,
        access.identities,
        access.administration,
        watches.one_shot,
        watches.lasting,
        watches.removal,
        watches.rearming,
        watches.unreadable,
        transactions.multi,
        transactions.refused_multi,
        transactions.multi_read,
        quotas.quotas,
    )
}


def play(theme: str, target: Target) -> Recording:
    """Play one theme and return what was sent and received.  Raises: Unexpected at an unexpected answer."""
    player = Player(target, theme)
    THEMES[theme](player)
    return Recording(theme, player.base, player.exchanges)
