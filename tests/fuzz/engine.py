"""The fuzzer: changes inputs at random, and keeps those that reach new lines.

Knows nothing of the targets but what `Target` says.
"""

from __future__ import annotations

import random
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]
_PRODUCT: Final = (str(ROOT / "zkwire") + "/", str(ROOT / "recipes") + "/")
LONGEST: Final = 8192  # bytes of an input
_PROGRESS: Final = 5.0  # seconds of processor time that one batch may take, which usually takes a few milliseconds
_BATCH: Final = 64
_TRACED: Final = 24  # one input of so many is traced, where tracing is slow
_NUMBERS: Final = [
    number.to_bytes(4, "big", signed=True)
    for number in (0, 1, -1, -2, 2, 3, 4, 16, 127, 128, 2**15, 2**31 - 1, -(2**31))
]


@dataclass(frozen=True)
class Target:
    """What is fuzzed.

    `run` takes an input, and raises if a promise is broken: any exception that it lets out is a defect.  `seeds` are
    inputs to begin with; `words` are pieces to put into inputs.
    """

    name: str
    run: Callable[[bytes], None]
    seeds: Sequence[bytes]
    words: Sequence[bytes] = ()


class Stuck(Exception):
    """The target has not come to an end."""


class Failure(NamedTuple):
    """An input that breaks a promise, and how."""

    target: str
    data: bytes
    error: str

    def __str__(self) -> str:
        return f'    ("{self.target}", {self.data!r}),  # {self.error}'


class Fuzzer:
    """Fuzzes `target`; `rng` decides all that is random."""

    def __init__(self, target: Target, rng: random.Random) -> None:
        self.target = target
        self.count = 0
        self._rng = rng
        self._corpus = [seed[:LONGEST] for seed in target.seeds] or [b""]
        self._lines = _Lines()

    @property
    def kept(self) -> int:
        """How many inputs are kept, the seeds included."""
        return len(self._corpus)

    def run(self, *, seconds: float = float("inf"), inputs: float = float("inf")) -> Failure | None:
        """Try inputs for so long, or so many; return the first that breaks a promise, or None."""
        end = time.monotonic() + seconds
        most = self.count + inputs
        data = b""
        try:
            with _progress() as moved:
                for data in list(self._corpus):
                    moved()
                    self._try(data, traced=True)
                while time.monotonic() < end and self.count < most:
                    moved()
                    for _ in range(_BATCH):
                        data = self._changed()
                        self._try(data, traced=self._lines.is_cheap or self.count % _TRACED == 0)
        except Exception as error:  # noqa: BLE001  # any exception is what a fuzzer looks for
            return Failure(self.target.name, data, _said(error))
        return None

    def _try(self, data: bytes, *, traced: bool) -> None:
        self.count += 1
        if not traced:
            self.target.run(data)
            return
        with self._lines as lines:
            self.target.run(data)
        if lines.take_news() and data not in self._corpus:
            self._corpus.append(data)

    def _changed(self) -> bytes:
        rng = self._rng
        data = bytearray(rng.choice(self._corpus))
        for _ in range(rng.choice((1, 1, 2, 3, 6))):
            at = rng.randrange(len(data) + 1)
            match rng.randrange(9):
                case 0 if data:
                    data[at % len(data)] ^= 1 << rng.randrange(8)
                case 1 if data:
                    data[at % len(data)] = rng.randrange(256)
                case 2:
                    data[at : at + rng.randrange(1, 9)] = b""
                case 3:
                    data[at:at] = rng.randbytes(rng.randrange(1, 9))
                case 4:
                    data[at : at + 4] = rng.choice(_NUMBERS)
                case 5 if self.target.words:
                    data[at:at] = rng.choice(self.target.words)
                case 6:
                    other = rng.choice(self._corpus)
                    data[at:] = other[rng.randrange(len(other) + 1) :]
                case 7:
                    data[at:at] = data[at : at + rng.randrange(1, 65)] * rng.choice((1, 2, 40))
                case _:
                    del data[at:]
        return bytes(data[:LONGEST])


def failure_of(target: Target, data: bytes) -> str | None:
    """Return how `data` breaks a promise, None if it does not."""
    try:
        with _progress():
            target.run(data)
    except Exception as error:  # noqa: BLE001  # any exception is what a fuzzer looks for
        return _said(error)
    return None


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".replace("\n", " ")[:160]


@contextmanager
def _progress() -> Iterator[Callable[[], None]]:
    """Raise Stuck in the block when it takes too much processor time, counted from the last call of what it yields."""

    def stuck(number: int, frame: FrameType | None) -> None:
        raise Stuck(f"no end after {_PROGRESS:g} s of processor time")

    before = signal.signal(signal.SIGPROF, stuck)
    try:
        signal.setitimer(signal.ITIMER_PROF, _PROGRESS)
        yield lambda: signal.setitimer(signal.ITIMER_PROF, _PROGRESS) and None
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


class _Lines:
    """The lines of the product that were reached.  In the `with` block they are recorded.

    From Python 3.12 on `sys.monitoring` reports each line once, at almost no cost; before, `sys.settrace` is slow.
    """

    def __init__(self) -> None:
        self._seen: set[tuple[CodeType, int]] = set()
        self._before = 0
        self._monitoring: Any = getattr(sys, "monitoring", None)
        self.is_cheap = self._monitoring is not None

    def __enter__(self) -> _Lines:
        if self._monitoring is None:
            sys.settrace(self._call)
            return self
        tool, monitoring = self._monitoring.COVERAGE_ID, self._monitoring
        if monitoring.get_tool(tool) is None:
            monitoring.use_tool_id(tool, "fuzz")
            monitoring.register_callback(tool, monitoring.events.LINE, self._line)
        monitoring.set_events(tool, monitoring.events.LINE)
        return self

    def __exit__(self, *error: object) -> None:
        if self._monitoring is None:
            sys.settrace(None)
        else:
            self._monitoring.set_events(self._monitoring.COVERAGE_ID, 0)

    def take_news(self) -> bool:
        """Return whether a line was reached for the first time since the last call."""
        before, self._before = self._before, len(self._seen)
        return len(self._seen) > before

    def _call(self, frame: FrameType, event: str, argument: object) -> Any:
        return self._trace if frame.f_code.co_filename.startswith(_PRODUCT) else None

    def _trace(self, frame: FrameType, event: str, argument: object) -> Any:
        self._seen.add((frame.f_code, frame.f_lineno))
        return self._trace

    def _line(self, code: CodeType, line: int) -> Any:
        if code.co_filename.startswith(_PRODUCT):
            self._seen.add((code, line))
        return self._monitoring.DISABLE
