"""The simulated ensemble: what its servers do as real ones do, where a client's promise depends on it."""

from tests.simulation.ensemble.ensemble import Ensemble, Shape
from tests.simulation.ensemble.history import CREATE_SESSION, HEADER_SIZE, SYNC, ClientConnection, Pending, Transaction
from tests.simulation.ensemble.leader import SYNC_LIMIT, Leader
from tests.simulation.ensemble.learner import Learner
from tests.simulation.ensemble.server import SimulatedServer
from tests.simulation.links import Network
from tests.simulation.loop import World
from zkwire.wire.records import OPEN_ACL
from zkwire.wire.requests import Create2Request, CreateRequest, SyncRequest

_ISOLATED_AT = 2.2  # ticks of one second
_LAST_PING = 2.0


def run_to(world: World, moment: float) -> None:
    world.at(moment, world.look)
    world.run(until=lambda: world.now >= moment, limit=moment)


def started(shape: Shape) -> tuple[World, Ensemble]:
    """Return an ensemble that serves."""
    world = World(1)
    ensemble = Ensemble(Network(world), shape)
    ensemble.preset(["/a"])
    ensemble.start()
    run_to(world, 1.0)
    return world, ensemble


def test_a_silent_leader_is_given_up_after_sync_limit_and_gives_up_up_to_a_tick_later_while_another_one_leads() -> None:
    world, ensemble = started(Shape(tick=1.0))
    run_to(world, _ISOLATED_AT)
    for name in ("s2", "s3"):
        ensemble.network.block("s1", name)
        ensemble.network.block(name, "s1")
    old, follower, _ = ensemble.servers
    run_to(world, _LAST_PING + SYNC_LIMIT - 0.1)
    assert isinstance(follower.role, Learner)
    assert follower.role.leader is old
    run_to(world, _LAST_PING + SYNC_LIMIT + 0.1)
    assert not isinstance(follower.role, Learner) or follower.role.leader is not old
    run_to(world, _LAST_PING + SYNC_LIMIT + 0.9)
    assert isinstance(old.role, Leader)
    assert old.role.is_serving
    found = ensemble.leader()
    assert found is not None
    assert found[0] is not old
    run_to(world, _LAST_PING + SYNC_LIMIT + 1.1)
    assert old.role is None


def submit(
    server: SimulatedServer, opcode: int, payload: bytes = b"", *, xid: int = 1, timeout: float = 4.0
) -> Pending:
    """Submit a request of session 7 at one of the servers, on a connection of its own."""
    client = ClientConnection(None, server.world.now)
    client.session_id, client.timeout_ms = 7, round(timeout * 1000)
    pending = Pending(client, xid, opcode, bytes(HEADER_SIZE) + payload, waits=True)
    assert server.role is not None
    server.enqueue(pending)
    server.role.submit(pending)
    return pending


def a_create(path: str) -> bytes:
    return CreateRequest(path, b"", OPEN_ACL, 0).encode()


def test_a_learner_takes_a_commit_for_that_of_a_request_with_the_same_session_and_xid() -> None:
    world, ensemble = started(Shape(tick=1.0, observers=1))
    _, former, _, observer = ensemble.servers
    submit(observer, CREATE_SESSION, xid=0)
    run_to(world, 1.2)
    ensemble.network.block("s1", observer.name)
    submit(former, CreateRequest.opcode, a_create("/old"), xid=5)
    run_to(world, 1.25)
    claimed: list[Pending | None] = []
    assert isinstance(observer.role, Learner)
    claim = observer.role.claim

    def noting(transaction: Transaction) -> Pending | None:
        claimed.append(claim(transaction))
        return claimed[-1]

    observer.role.claim = noting  # type: ignore[method-assign]
    other = submit(observer, Create2Request.opcode, a_create("/new"), xid=5)
    run_to(world, 1.3)
    ensemble.network.unblock("s1", observer.name)
    run_to(world, 1.4)
    assert claimed == [other, None]
    assert "/new" in observer.replica.tree.nodes


def test_a_learner_ends_when_a_sync_was_answered_by_the_commit_of_another_request() -> None:
    world, ensemble = started(Shape(tick=1.0))
    _, former, present = ensemble.servers
    submit(present, CREATE_SESSION, xid=0)
    run_to(world, 1.2)
    ensemble.network.block("s1", present.name)
    submit(former, CreateRequest.opcode, a_create("/old"))
    run_to(world, 1.25)
    submit(present, SYNC, SyncRequest("/").encode())
    run_to(world, 1.3)
    ensemble.network.unblock("s1", present.name)
    run_to(world, 1.4)
    assert not present.is_up
    run_to(world, 6.0)
    assert present.is_up


def test_the_sessions_of_a_bucket_are_ended_one_by_one_and_a_touch_comes_too_late_for_them() -> None:
    world, ensemble = started(Shape(tick=1.0, bucket=2.0))
    leader = ensemble.servers[0].role
    assert isinstance(leader, Leader)
    for session_id in (7, 8):
        leader.tracker.track(session_id, 2000, leader._clock())
    polled = leader.tracker.by_id[7].tick - leader._clock() + world.now
    run_to(world, polled + 1e-5)
    assert leader.tracker.refusal(7, leader) == leader.tracker.refusal(8, leader) == 0
    assert leader.touch(7, 2000)
    assert leader.touch(8, 2000)
    run_to(world, polled + 1.9)
    assert leader.tracker.by_id.keys() < {7, 8}  # the touches would be good for longer
