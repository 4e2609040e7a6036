"""All scenarios by name: those of the modules in this folder."""

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.simulation.scenario import Scenario

for _file in sorted(Path(__file__).parent.glob("*.py")):
    importlib.import_module(f"tests.simulation.scenarios.{_file.stem}")


def _named(kind: type[Scenario]) -> Iterator[tuple[str, type[Scenario]]]:
    if "name" in vars(kind):
        yield kind.name, kind
    for each in kind.__subclasses__():
        yield from _named(each)


SCENARIOS: Final = dict(_named(Scenario))  # type: ignore[type-abstract]
