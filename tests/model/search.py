"""The search through all states that a model can reach, and the readable list of steps to a state that must not be.

Knows nothing of the models: a state is any value that can be hashed, a step is a tuple of words and numbers.
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeAlias, TypeVar

State = TypeVar("State")
Step: TypeAlias = tuple[object, ...]


class Broken(Exception):
    """A promise is broken by the step at hand; the message says which."""


def search(
    start: State,
    following: Callable[[State], Iterable[tuple[Step, State]]],
    in_words: Callable[[Step], str],
    limit: int,
) -> int:
    """Visit every state that can be reached from `start`, and return their number.

    Arguments: `following`, returns the steps that are possible in a state, each with the state that it leads to, and
    raises Broken where a promise is broken, in that state or by a step from it; `in_words`, puts a step into
    words; `limit`, the largest number of states.
    Raises: AssertionError with the shortest list of steps to a broken promise, or when there are too many states.
    """
    came_from: dict[State, tuple[State, Step] | None] = {start: None}
    waiting = deque([start])
    with _without_garbage_collector():
        while waiting:
            state = waiting.popleft()
            try:
                for step, reached in following(state):
                    if reached not in came_from:
                        came_from[reached] = state, step
                        waiting.append(reached)
            except Broken as broken:
                raise AssertionError(_counterexample(broken, _steps(came_from, state), in_words)) from None
            assert len(came_from) <= limit, f"more than {limit} states: bound the model"
    return len(came_from)


@contextmanager
def _without_garbage_collector() -> Iterator[None]:
    """Keep the states from being visited again and again: all of them are kept, and none is in a cycle."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _steps(came_from: dict[State, tuple[State, Step] | None], state: State) -> list[Step]:
    steps: list[Step] = []
    while (before := came_from[state]) is not None:
        state, step = before
        steps.append(step)
    return steps[::-1]


def _counterexample(broken: Broken, steps: list[Step], in_words: Callable[[Step], str]) -> str:
    lines = [f"{number:4}. {in_words(step)}" for number, step in enumerate(steps, 1)]
    return "\n".join([f"{broken}, after these steps:", *lines])
