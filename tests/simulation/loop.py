"""Virtual time: one world, and in it machines that each have an event loop and a clock of their own.

    world = World(seed=1)
    machine = Machine(world, "client-1", rate=1.0001)
    task = machine.create_task(main())
    world.run(until=task.done, limit=60.0)

Nothing sleeps.  When no machine has anything to do, the world's time jumps to the next event.  If there is no event
either, the run is stuck, and that is an error.  There are no threads and no sockets, and all randomness comes from the
seed: two runs of one seed make the same calls in the same order.

A machine is an asyncio event loop.  While its callbacks run, `asyncio.get_running_loop()` returns it.  It may be
stopped (its callbacks wait, its clock goes on: a blocked event loop, or a stopped process), or suspended (its clock
stands still, too, which it learns from `suspended` only), and its clock may be faster or slower than the world's.

This module knows nothing of ZooKeeper.
"""

import asyncio
import contextlib
import contextvars
import heapq
import random
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterator
from typing import Any, Final, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

# Machines are woken so much behind the time of a timer: conversions between two clocks are not exact, and a machine
# that is woken too early would find nothing to do, again and again.
_MARGIN: Final = 2e-9
_MOST_TURNS: Final = 20_000  # of all machines at one moment


class StuckError(AssertionError):
    """Nothing can happen any more, or too much time has passed, and what was waited for has not come."""


class Event:
    """A call at a moment of the world's time, which can be cancelled."""

    __slots__ = ("args", "call")

    def __init__(self, call: Callable[..., object], args: tuple[Any, ...]) -> None:
        self.call: Callable[..., object] | None = call
        self.args = args

    def cancel(self) -> None:
        """Do not make the call."""
        self.call = None


class World:
    """The time, the order of all that happens, and the source of all randomness.

    Arguments: `seed`, of `rng`.

    `now` is in seconds.  `turns` counts the turns of all machines.  `digest` is a number that depends on when which
    machine has run: two runs that differ in this order differ in it.  `complaints` are what machines reported to their
    exception handlers.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.now = 0.0
        self.turns = self.digest = 0
        self.complaints: list[str] = []
        self.machines: list[Machine] = []
        self._events: list[tuple[float, int, Event]] = []
        self._count = 0
        self._runnable: deque[Machine] = deque()
        self._objects = 0

    def at(self, when: float, call: Callable[..., object], *args: Any) -> Event:
        """Have `call(*args)` made at the moment `when`; calls of one moment are made in the order of their `at`."""
        event = Event(call, args)
        self._count += 1
        heapq.heappush(self._events, (max(when, self.now), self._count, event))
        return event

    def after(self, seconds: float, call: Callable[..., object], *args: Any) -> Event:
        """Have `call(*args)` made in `seconds` from now."""
        return self.at(self.now + seconds, call, *args)

    def run(self, *, until: Callable[[], bool], limit: float) -> None:
        """Let things happen until `until()` is true.

        Arguments: `limit`, the moment by which it must be.
        Raises: StuckError.
        """
        events, runnable = self._events, self._runnable
        turns_before = self.turns
        while not until():
            if runnable:
                if self.turns - turns_before > _MOST_TURNS:
                    raise StuckError(f"{runnable[0].name} goes on and on without any time passing")
                machine = runnable.popleft()
                self.turns += 1
                self.digest = hash((self.digest, self.now, machine.number))
                machine.turn()
                continue
            if not events:
                raise StuckError("nothing will happen any more")
            when, _, event = events[0]
            if when > limit:
                raise StuckError(f"not within {limit:g} s")
            heapq.heappop(events)
            if event.call is None:
                continue
            if when > self.now:
                self.now, turns_before = when, self.turns
            event.call(*event.args)

    def is_runnable(self, machine: "Machine") -> None:
        """Take note that `machine` has something to do; called by the machine."""
        self._runnable.append(machine)

    def next_number(self) -> int:
        """Return the number of a new object, by which it is hashed: the order of sets must not depend on addresses."""
        self._objects += 1
        return self._objects


class _Future(asyncio.Future[Any]):
    """A future with a hash that is the same in each run: the product puts futures into sets."""

    def __init__(self, number: int, *, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self._number = number

    def __hash__(self) -> int:
        return self._number


class _Task(asyncio.Task[Any]):
    """A task with a hash that is the same in each run."""

    _number = 0

    def __init__(
        self,
        number: int,
        coro: Generator[Any, None, Any] | Coroutine[Any, Any, Any],
        *,
        loop: asyncio.AbstractEventLoop,
        name: str | None,
        context: contextvars.Context | None,
    ) -> None:
        self._number = number  # first of all: asyncio puts the task into a set while it is made
        super().__init__(coro, loop=loop, name=name, context=context)

    def __hash__(self) -> int:
        return self._number


class Machine(asyncio.BaseEventLoop):
    """One machine: an event loop with a clock of its own in a world.

    Arguments: `name`; `rate`, seconds of its clock per second of the world; `offset`, what its clock shows at the
    beginning.

    `number` tells the machines of a world apart.  `slowness` is how many seconds each of its turns takes.
    `resumed_at` is when it was resumed from its last suspension, in the world's time.
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
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._count = 0
        self._alarm: Event | None = None
        self._alarm_at = 0.0
        self._is_queued = self._is_closed = self._is_suspended = False
        self._stops = 0
        self._tasks: dict[asyncio.Task[Any], None] = {}

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
        if self._ready:
            self._run_soon()
        self._set_alarm_or_run()

    # -- callbacks ------------------------------------------------------------------------------------------------

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        if not self._is_queued:
            self._run_soon()
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        if self._is_closed:
            raise RuntimeError("Event loop is closed")
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._count += 1
        heapq.heappush(self._timers, (when, self._count, handle))
        if self._timers[0][2] is handle:
            self._set_alarm()
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing: cancelled timers are left out when they come due."""

    def turn(self) -> None:
        """Run what is ready, as one turn of an asyncio event loop does; called by the world."""
        self._is_queued = False
        if self._stops:
            return
        timers, ready, due = self._timers, self._ready, self.time()
        while timers and timers[0][0] <= due:
            handle = heapq.heappop(timers)[2]
            if not handle.cancelled():
                ready.append(handle)
        asyncio._set_running_loop(self)
        try:
            for _ in range(len(ready)):
                handle_ = ready.popleft()
                if not handle_.cancelled():
                    handle_._run()
        finally:
            asyncio._set_running_loop(None)
        if self.slowness:
            self.stop_running()
            self.world.after(self.slowness, self.go_on)
        else:
            self._set_alarm()
            if ready:
                self._run_soon()

    def _run_soon(self) -> None:
        if not self._is_queued and not self._stops:
            self._is_queued = True
            self.world.is_runnable(self)

    def _set_alarm(self) -> None:
        """Have the world wake this machine when its first timer is due."""
        timers = self._timers
        while timers and timers[0][2].cancelled():
            heapq.heappop(timers)
        if not timers or self._is_suspended:
            return
        when = max(self._world_base + (timers[0][0] - self._clock_base) / self._rate, self.world.now) + _MARGIN
        if self._alarm is not None:
            if self._alarm.call is not None and self._alarm_at <= when and self._alarm_at >= self.world.now:
                return  # an early alarm sets the next one
            self._alarm.cancel()
        self._alarm_at = when
        self._alarm = self.world.at(when, self._wake)

    def _wake(self) -> None:
        self._alarm = None
        self._set_alarm_or_run()

    def _set_alarm_or_run(self) -> None:
        timers = self._timers
        while timers and timers[0][2].cancelled():
            heapq.heappop(timers)
        if timers and timers[0][0] <= self.time():
            self._run_soon()
        else:
            self._set_alarm()

    @property
    def is_idle(self) -> bool:
        """Whether the machine runs, and has done all that it had to do by now."""
        if self._stops or self._is_queued or self._ready:
            return False
        return not any(when <= self.time() and not each.cancelled() for when, _, each in self._timers[:1])

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """Be the running loop for a moment, so that a check can ask an object of this machine."""
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            yield
        finally:
            asyncio._set_running_loop(before)

    # -- tasks and futures ----------------------------------------------------------------------------------------

    def create_future(self) -> asyncio.Future[Any]:
        return _Future(self.world.next_number(), loop=self)

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: object = None,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[T]:
        task = _Task(
            self.world.next_number(), coro, loop=self, name=None if name is None else str(name), context=context
        )
        self._tasks[task] = None
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)

    # -- what is left, and the end ----------------------------------------------------------------------------------

    def left(self) -> list[str]:
        """Return a line for each task, timer and callback that is left."""
        tasks = [f"{self.name}: the task {task.get_name()}: {task.get_coro()!r}" for task in self._tasks]
        timers = [f"{self.name}: the timer {handle!r}" for _, _, handle in self._timers if not handle.cancelled()]
        ready = [f"{self.name}: the callback {handle!r}" for handle in self._ready if not handle.cancelled()]
        return tasks + timers + ready

    def cancel_all(self) -> None:
        """Cancel all tasks, at the end of a run that has failed."""
        for task in list(self._tasks):
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
        error = context.get("exception")
        self.world.complaints.append(f"{self.name}: {context['message']}: {error!r}")
