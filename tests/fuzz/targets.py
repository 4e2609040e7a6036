"""All targets by their names; those that begin with the recordings are made when they are needed."""

from collections.abc import Callable
from functools import partial
from typing import Final

from tests.fuzz import texts, wire
from tests.fuzz.engine import Target

TARGETS: Final[dict[str, Callable[[], Target]]] = {
    **wire.TARGETS,
    **{target.name: partial(texts.named, target.name) for target in texts.TARGETS},
}
