"""The simulated ensemble: until when a server without the others goes on, as the real one's syncLimit has it."""

from tests.simulation.ensemble.ensemble import Ensemble, Shape
from tests.simulation.ensemble.history import SYNC, ClientConnection, Pending
from tests.simulation.ensemble.leader import SYNC_LIMIT, Leader
from tests.simulation.ensemble.learner import Learner
from tests.simulation.links import Network
from tests.simulation.loop import World

_ISOLATED_AT = 2.2  # ticks of one second
_LAST_PING = 2.0


def run_to(world: World, moment: float) -> None:
    world.at(moment, world.look)
    world.run(until=lambda: world.now >= moment, limit=moment)


def isolated_leader() -> tuple[World, Ensemble]:
    """Return an ensemble whose first leader was isolated shortly after a ping."""
    world = World(1)
    network = Network(world)
    ensemble = Ensemble(network, Shape(tick=1.0))
    ensemble.start()
    run_to(world, _ISOLATED_AT)
    for name in ("s2", "s3"):
        network.block("s1", name)
        network.block(name, "s1")
    return world, ensemble


def test_a_follower_gives_up_a_silent_leader_after_sync_limit_ticks() -> None:
    world, ensemble = isolated_leader()
    old, follower = ensemble.servers[0], ensemble.servers[1]
    run_to(world, _LAST_PING + SYNC_LIMIT - 0.1)
    assert isinstance(follower.role, Learner)
    assert follower.role.leader is old
    run_to(world, _LAST_PING + SYNC_LIMIT + 0.1)
    assert not isinstance(follower.role, Learner) or follower.role.leader is not old


def test_a_leader_gives_up_at_most_a_tick_later_than_its_followers_and_another_one_leads_meanwhile() -> None:
    world, ensemble = isolated_leader()
    old = ensemble.servers[0]
    run_to(world, _LAST_PING + SYNC_LIMIT + 0.9)
    assert isinstance(old.role, Leader)
    assert old.role.is_serving
    found = ensemble.leader()
    assert found is not None
    assert found[0] is not old
    run_to(world, _LAST_PING + SYNC_LIMIT + 1.1)
    assert old.role is None


def test_a_server_that_lags_carries_out_what_is_committed_and_answers_syncs_when_it_has_caught_up() -> None:
    world = World(1)
    ensemble = Ensemble(Network(world), Shape(tick=1.0))
    ensemble.preset(["/a"])
    ensemble.start()
    run_to(world, 1.0)
    leader, late, other = ensemble.servers
    late.lag()
    assert ensemble.delete("/a")
    run_to(world, 1.1)
    sync = Pending(ClientConnection(None, world.now), 1, SYNC, b"", waits=True)
    assert late.role is not None
    late.role.submit(sync)
    run_to(world, 1.2)
    assert "/a" not in leader.replica.tree.nodes
    assert "/a" not in other.replica.tree.nodes
    assert "/a" in late.replica.tree.nodes
    assert sync.waits
    late.catch_up()
    assert "/a" not in late.replica.tree.nodes
    assert not sync.waits
