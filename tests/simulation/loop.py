"""Virtual time: one world, and in it machines that each have an event loop and a clock of their own.

    world = World(seed=1)
    machine = Machine(world, "client-1", rate=1.0001)
    task = machine.create_task(main())
    world.run(until=task.done, limit=60.0)

Nothing sleeps.  When no machine has anything to do, the world's time jumps to the next event.  If there is no event
either, the run is stuck, and that is an error.  There are no threads and no sockets, and all randomness comes from the
seed: two runs of one seed make the same calls in the same order.

A machine is an asyncio event loop.  While its callbacks run, `asyncio.get_running_loop()` returns it; while what is no
machine runs, the one that ran last.  It may be stopped (its callbacks wait, its clock goes on: a blocked event loop, or
a stopped process), also within a callback, where it looks at the clock; or suspended (its clock stands still, too,
which it learns from `suspended` only); its clock may be faster or slower than the world's; and its process may die.

This module knows nothing of ZooKeeper.
"""

import asyncio
import contextlib
import heapq
import random
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterator, Sequence
from contextvars import Context, copy_context
from typing import Any, Final, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

# A timer goes off so much behind its time: conversions between two clocks are not exact, and what is called too early
# would set the timer again, and again.
_MARGIN: Final = 2e-9
_MOST_TURNS: Final = 20_000  # of all machines at one moment
LOOK_EVERY: Final = 0.1  # seconds of the world, see `World.run`
ON_CALL: Final = float("inf")  # only when `World.look` is called
_FEW: Final = 50
_MOST_AWAITS: Final = 20  # of a coroutine that is closed


class StuckError(AssertionError):
    """Nothing can happen any more, or too much time has passed, and what was waited for has not come."""


class DiedError(BaseException):
    """The process has died; raised in its coroutines, so that the checks of a scenario take note."""


class World:
    """The time, the order of all that happens, and the source of all randomness.

    Arguments: `seed`, of `rng`.

    `now` is in seconds.  `turns` counts the turns of all machines.  `digest` is a number that depends on when which
    machine has run: two runs that differ in this order differ in it.  `complaints` are what machines reported to their
    exception handlers.  `runnable` are the machines that have something to do.  `events` is the heap of all calls that
    are to be made: when, in which order, and what.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.now = 0.0
        self.turns = self.digest = 0
        self.complaints: list[str] = []
        self.machines: list[Machine] = []
        self.events: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._count = 0
        self._looks = False
        self.runnable: deque[Machine] = deque()
        self._objects = 0

    def at(self, when: float, call: Callable[..., object], *args: Any) -> None:
        """Have `call(*args)` made at the moment `when`; calls of one moment are made in the order of their `at`."""
        self._count += 1
        heapq.heappush(self.events, (when if when > self.now else self.now, self._count, call, args))

    def after(self, seconds: float, call: Callable[..., object], *args: Any) -> None:
        """Have `call(*args)` made in `seconds` from now."""
        self._count += 1
        heapq.heappush(self.events, (self.now + seconds if seconds > 0 else self.now, self._count, call, args))

    def look(self) -> None:
        """Have `run` look at its condition before anything else happens."""
        self._looks = True

    def run(self, *, until: Callable[[], bool], limit: float, every: float = LOOK_EVERY) -> None:
        """Let things happen until `until()` is true.

        To look at the condition costs more than most of what happens.  So it is looked at when `every` seconds have
        passed, when `look` was called, and before the run is said to be stuck.

        Arguments: `limit`, the moment by which it must be true.
        Raises: StuckError.
        """
        try:
            self._run(until, limit, every)
        finally:
            asyncio._set_running_loop(None)

    def _run(self, until: Callable[[], bool], limit: float, every: float) -> None:
        events, runnable, turns, next_look = self.events, self.runnable, 0, 0.0
        running: Machine | None = None
        pop = heapq.heappop
        while True:
            if self._looks or self.now >= next_look:
                self._looks = False
                next_look = self.now + every
                if until():
                    return
            while runnable and not self._looks:
                if events and events[0][0] <= self.now:
                    # Before the next turn, as an event loop asks for timers and for the network before each turn.
                    _, _, call, args = pop(events)
                    call(*args)
                    continue
                if turns > _MOST_TURNS:
                    raise StuckError(f"{runnable[0].name} goes on and on without any time passing")
                machine = runnable.popleft()
                if machine is not running:
                    running = machine
                    asyncio._set_running_loop(machine)
                turns += 1
                self.turns += 1
                self.digest = hash((self.digest, self.now, machine.number))
                machine.turn()
            if self._looks:
                continue
            if not events or events[0][0] > limit:
                if until():
                    return
                raise StuckError(f"not within {limit:g} s" if events else "nothing will happen any more")
            when, _, call, args = pop(events)
            if when > self.now:
                self.now, turns = when, 0
            call(*args)

    def next_number(self) -> int:
        """Return the number of a new object, by which it is hashed: the order of sets must not depend on addresses."""
        self._objects += 1
        return self._objects


class _Handle:
    """A callback, now or at a time.

    It stands in for an asyncio handle, from which it does not inherit: more than a thousand are made in each run, and
    the attributes of the base cost time.  `callback` is None when it is cancelled.
    """

    __slots__ = ("args", "callback", "context", "due")

    def __init__(
        self, due: float, callback: Callable[..., object], args: Sequence[Any], context: Context | None
    ) -> None:
        self.context = copy_context() if context is None else context
        self.callback: Callable[..., object] | None = callback
        self.args = args
        self.due = due

    def __repr__(self) -> str:
        # By its name: the objects that it belongs to may be asked on their own machine only.
        name = getattr(self.callback, "__qualname__", type(self.callback).__name__)
        return f"<_Handle of {name}, due at {self.due:g}>"

    def cancel(self) -> None:
        """Do not make the call."""
        self.callback, self.args = None, ()

    def cancelled(self) -> bool:
        """Return whether it is cancelled."""
        return self.callback is None

    def when(self) -> float:
        """Return the time of a timer."""
        return self.due


class _Numbered:
    """An object with a hash that is the same in each run: the product puts futures and tasks into sets."""

    _number = 0

    def __hash__(self) -> int:
        if not self._number:
            machine: Machine = self.get_loop()  # type: ignore[attr-defined]
            self._number = machine.world.next_number()
        return self._number


class _Future(_Numbered, asyncio.Future[Any]):
    pass


class _Task(_Numbered, asyncio.Task[Any]):
    pass


class Machine(asyncio.BaseEventLoop):
    """One machine: an event loop with a clock of its own in a world.

    Arguments: `name`; `rate`, seconds of its clock per second of the world; `offset`, what its clock shows at the
    beginning.

    `number` tells the machines of a world apart.  `slowness` is how many seconds each of its turns takes.
    `resumed_at` is when it was resumed from its last suspension, and `frozen_until` when it went on in the midst of a
    callback for the last time, in the world's time; `is_frozen`, whether it is stopped there now.  `is_dead` is whether
    its process has died.
    """

    def __init__(self, world: World, name: str, *, rate: float = 1.0, offset: float = 0.0) -> None:
        # BaseEventLoop is the base for its type only: whatever it keeps in attributes is done here in another way.
        self.world = world
        self.name = name
        self.number = len(world.machines)
        world.machines.append(self)
        self.slowness = 0.0
        self.resumed_at = float("-inf")
        self._rate = rate
        self._clock_base, self._world_base = offset, world.now
        self._suspended = 0.0
        self._ready: deque[_Handle] = deque()
        self._overdue: list[_Handle] = []  # timers that have gone off since the last turn
        self._suspended_timers: list[_Handle] = []  # those that have gone off too early, because the clock stands still
        self._is_queued = self._is_closed = self._is_suspended = self._has_drifted = False
        self.is_dead = self._is_turning = self.is_frozen = False
        self.frozen_until = float("-inf")
        self._stops = 0
        self._tasks: list[asyncio.Task[Any]] = []
        self._most_tasks = _FEW

    def __repr__(self) -> str:
        return f"<machine {self.name}>"

    def __del__(self) -> None:
        """Do nothing: there is no socket that a warning would be due for."""

    # -- the clock ------------------------------------------------------------------------------------------------

    def time(self) -> float:
        """Return what the machine's clock shows."""
        if self._is_suspended:
            return self._clock_base
        return self._clock_base + (self.world.now - self._world_base) * self._rate

    def suspended(self) -> float:
        """Return for how many seconds the machine was suspended so far."""
        return self._suspended + (self.world.now - self._world_base if self._is_suspended else 0.0)

    # -- stops ----------------------------------------------------------------------------------------------------

    @property
    def is_stopped(self) -> bool:
        """Whether no callback of the machine can run now."""
        return self._stops > 0

    def stop_running(self, *, suspend: bool = False) -> None:
        """Let no callback run until `go_on` is called as often.

        Arguments: `suspend`, whether the clock stands still meanwhile; a machine that is stopped is not suspended.
        """
        self._stops += 1
        if suspend and self._stops == 1:
            self._clock_base, self._world_base = self.time(), self.world.now
            self._is_suspended = True

    def go_on(self) -> None:
        """Undo one `stop_running`."""
        self._stops -= 1
        if self._is_suspended:
            self._suspended = self.suspended()
            self._is_suspended = False
            self._world_base = self.resumed_at = self.world.now
            timers, self._suspended_timers = self._suspended_timers, []
            for handle in timers:
                self._set_timer(handle)
        if self._ready or self._overdue:
            self._run_soon()

    def drift(self, rate: float) -> None:
        """Let the clock run at another rate from now on."""
        self._clock_base, self._world_base, self._rate = self.time(), self.world.now, rate
        self._has_drifted = True

    def freeze_soon(self, looks: int, seconds: float) -> None:
        """Stop the process for so long between two instructions: where it looks at the clock for the `looks`th time.

        With 0 looks it is between two callbacks of its next turn.
        """
        if looks == 0:
            place = self.world.rng.randrange(len(self._ready) + 1)
            self._ready.insert(place, _Handle(0.0, self._freeze, (seconds,), None))
            self._run_soon()
            return

        def time() -> float:
            nonlocal looks
            if self._is_turning and not self.is_frozen and looks > 0:  # once, even if it was kept
                looks -= 1
                if looks <= 0:
                    del self.time
                    seen = self.time()
                    self._freeze(seconds)
                    return seen
            return Machine.time(self)

        self.time = time  # type: ignore[method-assign]  # so that a look costs nothing where no freeze is due

    def _freeze(self, seconds: float) -> None:
        """Let the rest of the world go on for so long, in the midst of a callback."""
        world, end = self.world, self.world.now + seconds
        self._stops += 1
        self.is_frozen = True
        world.at(end, world.look)
        try:
            world.run(until=lambda: world.now >= end and self._stops == 1, limit=float("inf"))
        finally:
            asyncio._set_running_loop(self)
            self.is_frozen = False
            self.frozen_until = world.now
            self._stops -= 1
            world.look()  # what was noted meanwhile
        if self._ready or self._overdue:
            self._run_soon()

    def die(self) -> None:
        """Let the process die: nothing of it runs any more.  To be called while none of its callbacks runs."""
        self._stops += 1
        self.is_dead = True
        with self.inside():
            for task in self._tasks:
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                coroutine = task.get_coro()
                with contextlib.suppress(DiedError, StopIteration, Exception):
                    for _ in range(_MOST_AWAITS):  # also where it awaits something because it dies
                        coroutine.throw(DiedError())

    # -- callbacks ------------------------------------------------------------------------------------------------

    def call_soon(self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None) -> Any:
        handle = _Handle(0.0, callback, args, context)
        self._ready.append(handle)
        if not self._is_queued and not self._stops:
            self._is_queued = True
            self.world.runnable.append(self)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> Any:
        if self._is_closed:
            raise RuntimeError("Event loop is closed")
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> Any:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> Any:
        handle = _Handle(when, callback, args, context)
        self._set_timer(handle)
        return handle

    def _set_timer(self, handle: _Handle) -> None:
        if handle.due <= self.time():
            self._overdue.append(handle)
            self._run_soon()
            return
        when = self._world_base + (handle.due - self._clock_base) / self._rate + _MARGIN
        self.world.at(when, self._go_off, handle)

    def _go_off(self, handle: _Handle) -> None:
        """Have a timer's callback made in the next turn, behind what has come from the network, as asyncio does."""
        if handle.callback is None:
            return
        if self._is_suspended:
            self._suspended_timers.append(handle)
        elif self._suspended or self._has_drifted:
            self._set_timer(handle)  # perhaps it is not due yet
        else:
            self._overdue.append(handle)
            self._run_soon()

    def turn(self) -> None:
        """Run what is ready, as one turn of an asyncio event loop does; called by the world."""
        self._is_queued = False
        if self._stops:
            return
        self._is_turning = True
        ready = self._ready
        if self._overdue:
            ready.extend(self._overdue)
            self._overdue.clear()
        for _ in range(len(ready)):
            handle = ready.popleft()
            callback = handle.callback
            if callback is not None:
                try:
                    handle.context.run(callback, *handle.args)
                except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  # an event loop goes on
                    self.call_exception_handler({"message": f"an exception in {handle!r}", "exception": error})
        self._is_turning = False
        if self.slowness:
            self._stops += 1
            self.world.after(self.slowness, self.go_on)
        elif ready:
            self._run_soon()

    def _run_soon(self) -> None:
        if not self._is_queued and not self._stops:
            self._is_queued = True
            self.world.runnable.append(self)

    @property
    def is_idle(self) -> bool:
        """Whether the machine runs, and has nothing to do before the next event of the world."""
        return not (self._stops or self._is_queued or self._ready or self._overdue)

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """Be the running loop for a moment, so that a check can ask an object of this machine."""
        before, was_turning = asyncio._get_running_loop(), self._is_turning  # None before and after the run
        asyncio._set_running_loop(self)
        self._is_turning = False
        try:
            yield
        finally:
            self._is_turning = was_turning
            asyncio._set_running_loop(before)

    # -- tasks and futures ----------------------------------------------------------------------------------------

    def create_future(self) -> asyncio.Future[Any]:
        return _Future(loop=self)

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: object = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        task = _Task(coro, loop=self, name=None if name is None else str(name), context=context)
        self._tasks.append(task)
        if len(self._tasks) > self._most_tasks:
            self._tasks = [each for each in self._tasks if not each.done()]
            self._most_tasks = 2 * len(self._tasks) + _FEW
        return task

    # -- what is left, and the end ----------------------------------------------------------------------------------

    def left(self) -> list[str]:
        """Return a line for each task, timer and callback that is left; of a process that has died, nothing is."""
        if self.is_dead:
            return []
        tasks = [
            f"{self.name}: the task {task.get_name()}: {task.get_coro()!r}" for task in self._tasks if not task.done()
        ]
        pending = [args[0] for _, _, call, args in self.world.events if call == self._go_off]
        pending += [*self._suspended_timers, *self._overdue]
        timers = [f"{self.name}: the timer {handle!r}" for handle in pending if not handle.cancelled()]
        ready = [f"{self.name}: the callback {handle!r}" for handle in self._ready if not handle.cancelled()]
        return tasks + timers + ready

    def unseen(self) -> list[str]:
        """Return a line for each task whose exception no other task has looked at, which asyncio would report."""
        return [f"{self.name}: {task!r}" for task in self._tasks if getattr(task, "_log_traceback", False)]

    def cancel_all(self) -> None:
        """Cancel all tasks, at the end of a run that has failed."""
        for task in self._tasks:
            task.cancel()

    def close(self) -> None:
        """Accept no more calls from the garbage collector."""
        self._is_closed = True

    def is_closed(self) -> bool:
        return self._is_closed

    def is_running(self) -> bool:
        return asyncio._get_running_loop() is self

    def get_debug(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self.is_dead:
            return
        error = context.get("exception")
        self.world.complaints.append(f"{self.name}: {context['message']}: {error!r}")
