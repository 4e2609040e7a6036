"""All scenarios by name.  A new one: a module in this folder, and a line here."""

from typing import Final

from tests.simulation.scenario import Scenario
from tests.simulation.scenarios.barrier import BarrierScenario
from tests.simulation.scenarios.cache import CacheScenario
from tests.simulation.scenarios.client import ClientScenario
from tests.simulation.scenarios.counter import CounterScenario
from tests.simulation.scenarios.election import ElectionScenario
from tests.simulation.scenarios.group import GroupScenario
from tests.simulation.scenarios.lock import CrowdScenario, LockScenario, PollersScenario, TryLockScenario
from tests.simulation.scenarios.multi_lock import MultiLockScenario
from tests.simulation.scenarios.partitioner import PartitionerScenario
from tests.simulation.scenarios.protected import ProtectedScenario
from tests.simulation.scenarios.queue import QueueScenario
from tests.simulation.scenarios.read_write_lock import ReadWriteLockScenario
from tests.simulation.scenarios.semaphore import SemaphoreScenario
from tests.simulation.scenarios.timed_lock import TimedLockScenario

SCENARIOS: Final[dict[str, type[Scenario]]] = {
    each.name: each
    for each in (
        LockScenario,
        CrowdScenario,
        ClientScenario,
        ReadWriteLockScenario,
        SemaphoreScenario,
        ElectionScenario,
        TimedLockScenario,
        MultiLockScenario,
        QueueScenario,
        CounterScenario,
        PartitionerScenario,
        CacheScenario,
        GroupScenario,
        BarrierScenario,
        PollersScenario,
        TryLockScenario,
        ProtectedScenario,
    )
}
