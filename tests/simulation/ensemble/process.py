"""A process on a host: it can be paused, killed and started again; what comes to it meanwhile waits, or is lost."""

from collections import deque
from collections.abc import Callable
from typing import Any

from tests.simulation.ensemble.habits import Habits
from tests.simulation.loop import World


class Process:
    """What runs on one host.  Everything that happens to it comes through `post`, and its own timers through `after`.

    While it is paused, its timers and what comes from outside wait.  When it goes on, all its threads run at once: each
    handles its own in order, and which one comes first is drawn by the habit `haste`.

    `is_up` is whether it lives; `is_running`, whether it can answer: it is not paused, either.
    """

    def __init__(self, world: World, name: str, habits: Habits) -> None:
        self.world = world
        self.name = name
        self.habits = habits
        self._rate = 1 + habits.drift * world.rng.uniform(-1, 1) if habits.drift else 1.0
        self._slept = self._paused_at = 0.0
        self.is_up = self.is_running = True
        self._pauses = 0
        self._life = 0
        self._inbox: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._due: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()

    def clock(self) -> float:
        """Return what its clock shows, which stands still while its machine is suspended (System.nanoTime)."""
        return (self.world.now - self._slept) * self._rate

    def post(self, call: Callable[..., object], *args: Any) -> None:
        """Have the process make a call, for something that came from outside."""
        if self.is_running:
            call(*args)
        elif self.is_up:
            self._inbox.append((call, args))

    def after(self, seconds: float, call: Callable[..., object], *args: Any) -> None:
        """Have the process make a call in `seconds`, unless it is killed before."""
        self.world.after(seconds, self._timer, self._life, call, args)

    def _timer(self, life: int, call: Callable[..., object], args: tuple[Any, ...]) -> None:
        if life != self._life:
            return
        if self._pauses:
            self._due.append((call, args))
        else:
            call(*args)

    def pause(self) -> None:
        """Stop until `go_on` is called as often."""
        if not self._pauses:
            self._paused_at = self.world.now
        self._pauses += 1
        self.is_running = False

    def go_on(self) -> None:
        """Undo one `pause`."""
        self._pauses -= 1
        self.is_running = self.is_up and not self._pauses
        if self.habits.sleeps and not self._pauses:
            self._slept += self.world.now - self._paused_at
        due, inbox, haste = self._due, self._inbox, self.habits.haste
        while (due or inbox) and not self._pauses:
            is_timer = due and (not inbox or haste == 1 or self.world.rng.random() < haste)
            call, args = (due if is_timer else inbox).popleft()
            call(*args)

    def die(self) -> None:
        """End at once, and lose what was in memory."""
        self.is_up = self.is_running = False
        self._life += 1
        self._inbox.clear()
        self._due.clear()

    def revive(self) -> None:
        """Begin again after `die`."""
        self.is_up = True
        self.is_running = not self._pauses
