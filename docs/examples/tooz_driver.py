"""A driver for tooz, by which OpenStack's services coordinate: groups, leaders and locks (pip install tooz).

    [project.entry-points."tooz.backends"]  # in the pyproject.toml of the package that has this file
    zkwire = "tooz_driver:Driver"

    coordinator = tooz.coordination.get_coordinator("zkwire://zk1:2181,zk2:2181/nova?timeout=10", b"host-1")

The path, /tooz if there is none, is the node below which all is kept.  Each coordinator has a client, and an event loop
for it in a thread of its own.  A lock that is lost cannot stop a thread: ask `lock.is_still_owner()` before each step
that matters, or give `lock.token` to what it changes.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, TypeVar
from urllib.parse import quote, unquote_to_bytes

import tooz
from tooz import coordination, locking, utils
from tooz.coordination import CoordAsyncResult, CoordinatorResult

import zkwire
from recipes import Lease, Lock, LockLostError, ReadWriteLock
from zkwire.blocking import Portal

T = TypeVar("T")


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Raise errors of zkwire as those of tooz."""
    try:
        yield
    except TimeoutError as error:
        raise coordination.OperationTimedOut(str(error)) from error
    except (zkwire.ConnectionLostError, zkwire.SessionError) as error:
        raise coordination.ToozConnectionError(str(error)) from error
    except zkwire.ZooKeeperError as error:
        raise tooz.ToozError(str(error)) from error


class DriverLock(locking.Lock):
    """A lock of tooz: a ReadWriteLock, of which this object may have several leases if they are shared."""

    def __init__(self, portal: Portal, zk: zkwire.Client, path: str, name: bytes) -> None:
        super().__init__(name)
        self._portal, self._zk = portal, zk
        self._lock = portal.call(ReadWriteLock, zk, path)
        self._leases: list[Lease] = []

    @property
    def acquired(self) -> bool:
        return bool(self._leases)

    @property
    def token(self) -> int:
        """The fencing token, which grows with every owner; IndexError if the lock is not held."""
        return self._leases[-1].token

    def acquire(self, blocking: bool = True, shared: bool = False, timeout: float | None = None) -> bool:
        blocking, timeout = utils.convert_blocking(blocking, timeout)
        lock = self._lock.read() if shared else self._lock.write()
        with translated():
            if blocking:
                try:
                    lease: Lease | None = self._portal.call(lock.acquire, within=timeout)
                except TimeoutError:
                    return False
            else:
                lease = self._portal.call(lock.try_acquire)
        if lease is not None:
            self._leases.append(lease)
        return lease is not None

    def release(self) -> bool:
        try:
            lease = self._leases.pop()
        except IndexError:
            return False
        with translated():
            was_held = self._holds(lease)
            self._portal.call(lease.release)
            return was_held

    def is_still_owner(self) -> bool:
        with translated():
            return bool(self._leases) and self._holds(self._leases[-1])

    def _holds(self, lease: Lease) -> bool:
        """Return whether the lock is certainly held; the node is looked at, for one that was broken a moment ago."""
        try:
            self._portal.call(lease.check)
            return self._portal.call(self._zk.exists, lease.path) is not None
        except LockLostError:
            return False

    def break_(self) -> bool:
        with translated():
            removed = [self._portal.call(one.remove) for one in self._portal.call(self._lock.contenders) if one.owns]
            return any(removed)


class Driver(coordination.CoordinationDriverCachedRunWatchers, coordination.CoordinationDriverWithExecutor):
    """The driver; see the top of this file."""

    CHARACTERISTICS = (
        coordination.Characteristics.NON_TIMEOUT_BASED,
        coordination.Characteristics.DISTRIBUTED_ACROSS_THREADS,
        coordination.Characteristics.DISTRIBUTED_ACROSS_PROCESSES,
        coordination.Characteristics.DISTRIBUTED_ACROSS_HOSTS,
        coordination.Characteristics.SEQUENTIAL,
    )

    def __init__(self, member_id: bytes, parsed_url: Any, options: dict[str, Any]) -> None:
        super().__init__(member_id, parsed_url, options)
        self._hosts = parsed_url.netloc
        self._base = parsed_url.path.rstrip("/") or "/tooz"
        self._timeout = float(self._options.get("timeout", 10.0))
        self._leases: dict[bytes, Lease] = {}  # of the groups that this member leads

    def _start(self) -> None:
        with contextlib.ExitStack() as stack:
            self._portal = stack.enter_context(Portal())
            connecting = zkwire.connect(self._hosts, self._timeout, within=self._timeout)
            try:
                self._zk = stack.enter_context(self._portal.enter(connecting))
            except (TimeoutError, zkwire.ZooKeeperError) as error:
                raise coordination.ToozConnectionError(str(error)) from error
            with translated():
                self._portal.call(self._zk.ensure_path, f"{self._base}/groups")
            self._started_with = stack.pop_all()

    def _stop(self) -> None:
        self._leases.clear()  # the end of the session ends them
        self._started_with.close()

    def _path(self, kind: str, *names: bytes) -> str:
        return "/".join((self._base, kind, *(quote(name, safe="") for name in names)))

    def _later(self, work: Callable[[], T]) -> CoordAsyncResult[T]:
        return CoordinatorResult(self._executor.submit(work), translated)

    # -- groups: a node for each, and below it an ephemeral node for each member ----------------------------------

    def create_group(self, group_id: bytes) -> CoordAsyncResult[None]:
        def work() -> None:
            try:
                self._portal.call(self._zk.create, self._path("groups", group_id), recover=True)
            except zkwire.NodeExistsError:
                raise coordination.GroupAlreadyExist(group_id) from None

        return self._later(work)

    def delete_group(self, group_id: bytes) -> CoordAsyncResult[None]:
        def work() -> None:
            try:
                self._portal.call(self._zk.delete, self._path("groups", group_id))
            except zkwire.NoNodeError:
                raise coordination.GroupNotCreated(group_id) from None
            except zkwire.NotEmptyError:
                raise coordination.GroupNotEmpty(group_id) from None

        return self._later(work)

    def get_groups(self) -> CoordAsyncResult[list[bytes]]:
        def work() -> list[bytes]:
            return [unquote_to_bytes(name) for name in self._portal.call(self._zk.get_children, self._path("groups"))]

        return self._later(work)

    def join_group(self, group_id: bytes, capabilities: dict[str, Any] | None = None) -> CoordAsyncResult[None]:
        def work() -> None:
            path, data = self._path("groups", group_id, self._member_id), utils.dumps(capabilities)
            try:
                self._portal.call(self._zk.create, path, data, ephemeral=True, recover=True)
            except zkwire.NodeExistsError:
                raise coordination.MemberAlreadyExist(group_id, self._member_id) from None
            except zkwire.NoNodeError:
                raise coordination.GroupNotCreated(group_id) from None
            self._joined_groups.add(group_id)

        return self._later(work)

    def leave_group(self, group_id: bytes) -> CoordAsyncResult[None]:
        def work() -> None:
            with self._joined(group_id, self._member_id):
                self._portal.call(self._zk.delete, self._path("groups", group_id, self._member_id))
            self._joined_groups.discard(group_id)

        return self._later(work)

    def update_capabilities(self, group_id: bytes, capabilities: dict[str, Any]) -> CoordAsyncResult[None]:
        def work() -> None:
            path, data = self._path("groups", group_id, self._member_id), utils.dumps(capabilities)
            with self._joined(group_id, self._member_id):
                self._portal.call(self._zk.set, path, data)

        return self._later(work)

    def get_members(self, group_id: bytes) -> CoordAsyncResult[set[bytes]]:
        return self._later(lambda: set(self._members(group_id)))

    def get_members_with_capabilities(self, group_id: bytes) -> CoordAsyncResult[dict[bytes, dict[str, Any] | None]]:
        def work() -> dict[bytes, dict[str, Any] | None]:
            found = {}
            for member in self._members(group_id):
                with contextlib.suppress(coordination.MemberNotJoined):  # it has just left
                    found[member] = self._info(group_id, member)["capabilities"]
            return found

        return self._later(work)

    def get_member_capabilities(self, group_id: bytes, member_id: bytes) -> CoordAsyncResult[dict[str, Any] | None]:
        return self._later(lambda: self._info(group_id, member_id)["capabilities"])

    def get_member_info(self, group_id: bytes, member_id: bytes) -> CoordAsyncResult[dict[str, Any]]:
        return self._later(lambda: self._info(group_id, member_id))

    def _members(self, group_id: bytes) -> list[bytes]:
        try:
            names = self._portal.call(self._zk.get_children, self._path("groups", group_id))
        except zkwire.NoNodeError:
            raise coordination.GroupNotCreated(group_id) from None
        return [unquote_to_bytes(name) for name in names]

    def _info(self, group_id: bytes, member_id: bytes) -> dict[str, Any]:
        with self._joined(group_id, member_id):
            data, stat = self._portal.call(self._zk.get, self._path("groups", group_id, member_id))
        return {
            "capabilities": utils.loads(data),
            "created_at": utils.millis_to_datetime(stat.ctime),
            "updated_at": utils.millis_to_datetime(stat.mtime),
        }

    @staticmethod
    @contextlib.contextmanager
    def _joined(group_id: bytes, member_id: bytes) -> Iterator[None]:
        try:
            yield
        except zkwire.NoNodeError:
            raise coordination.MemberNotJoined(group_id, member_id) from None

    # -- leaders and locks ----------------------------------------------------------------------------------------

    def _leader_lock(self, group_id: bytes) -> Lock:
        return self._portal.call(Lock, self._zk, self._path("leaders", group_id), data=self._member_id)

    def get_leader(self, group_id: bytes) -> CoordAsyncResult[Any]:
        def work() -> bytes | None:
            contenders = self._portal.call(self._leader_lock(group_id).contenders)
            return next((one.data for one in contenders if one.owns), None)

        return self._later(work)

    def run_watchers(self, timeout: float | None = None) -> list[Any]:
        results = super().run_watchers(timeout)
        self.run_elect_coordinator()
        return results

    def run_elect_coordinator(self) -> None:
        for group_id, hooks in list(self._hooks_elected_leader.items()):
            if (lease := self._leases.get(group_id)) is not None:
                with contextlib.suppress(LockLostError):
                    self._portal.call(lease.check)
                    continue
            with translated():
                lease = self._portal.call(self._leader_lock(group_id).try_acquire)
            if lease is not None:
                self._leases[group_id] = lease
                hooks.run(coordination.LeaderElected(group_id, self._member_id))

    def stand_down_group_leader(self, group_id: bytes) -> bool:
        lease = self._leases.pop(group_id, None)
        if lease is None:
            return False
        with translated():
            self._portal.call(lease.release)
        return True

    def get_lock(self, name: bytes) -> DriverLock:
        return DriverLock(self._portal, self._zk, self._path("locks", name), name)
