"""All scenarios by name.  A new one: a module in this folder, and a line here."""

from typing import Final

from tests.simulation.scenario import Scenario
from tests.simulation.scenarios.client import ClientScenario
from tests.simulation.scenarios.lock import LockScenario

SCENARIOS: Final[dict[str, type[Scenario]]] = {each.name: each for each in (LockScenario, ClientScenario)}
