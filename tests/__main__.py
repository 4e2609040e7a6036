"""`python -m tests`: the whole suite in several pytest processes side by side, which wait while others work.

With arguments, one pytest that gets them.  Each process has servers of its own; what they print is shown one behind the
other, the first as it comes.
"""

import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Final

from tests.support.archive import environment

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parent
PROCESSES: Final = 3
# These share something that takes long to start.
TOGETHER: Final = ("ensembles",)
# Seconds, about, of what takes longer than DEFAULT; by this the processes get equal shares.
DEFAULT: Final = 0.6
SECONDS: Final[dict[str, float]] = {
    "conformance/test_input.py": 3,
    "conformance/test_tree_removal.py": 7,
    "differential/test_differential.py": 16,
    "ensembles": 49,
    "recipes/line/test_line_trials.py": 7,
    "recipes/test_lock_trials.py": 16,
    "recipes/queue/test_queue_trials.py": 8,
    "zkwire/session/test_cancel.py": 4,
    "zkwire/session/test_expiry.py": 10,
    "zkwire/session/test_reconnect.py": 4,
    "recipes/test_state_trials.py": 6,
    "zkwire/client/test_event_stream.py": 6,
    "zkwire/client/test_node_streams.py": 4,
    "recipes/cache/test_cache.py": 13,
    "recipes/test_counter.py": 5,
    "recipes/test_election.py": 3,
    "recipes/line/test_entering.py": 4,
    "recipes/line/test_lease.py": 4,
    "recipes/line/test_waiting_ticket.py": 4,
    "recipes/line/test_position.py": 6,
    "recipes/test_lock.py": 16,
    "recipes/test_multi_lock.py": 2,
    "recipes/test_persistent_ephemeral.py": 2,
    "recipes/queue/test_queue.py": 5,
    "recipes/queue/test_queue_faults.py": 12,
    "recipes/test_read_write_lock.py": 3,
    "recipes/test_timed_lock.py": 4,
    "zkwire/testing/real/test_ensemble.py": 14,
    "zkwire/testing/test_fixtures.py": 6,
    "zkwire/testing/real/test_server.py": 9,
    "zkwire/session/test_hosts.py": 4,
    "zkwire/wire/test_jute.py": 16,
    "zkwire/test_paths.py": 3,
    "zkwire/wire/test_watch_table.py": 4,
}


def main(arguments: list[str]) -> int:
    """Return the exit status: 0 when all tests have passed."""
    if arguments:
        return _pytest(arguments).wait()
    first, *others = shares(PROCESSES)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        archive = Path(folder, "archive.jsa")
        stack.callback(subprocess.Popen([sys.executable, "-m", "tests.support.archive", archive], cwd=ROOT).wait)
        outputs = [stack.enter_context(tempfile.TemporaryFile()) for _ in others]
        running = [_pytest(share, output, archive) for share, output in zip(others, outputs, strict=True)]
        running.append(_pytest(first, None, archive))
        for process in running:
            stack.callback(process.wait)  # whatever happens, for the archive is theirs
        statuses = [running[-1].wait()]
        for process, output in zip(running, outputs, strict=False):
            statuses.append(process.wait())
            output.seek(0)
            sys.stdout.buffer.write(output.read())
            sys.stdout.flush()
    return max(statuses, key=abs)


def shares(count: int) -> list[list[str]]:
    """The files and folders of tests in `count` shares that take about as long as one another."""
    files = [HERE / name for name in TOGETHER]
    files += [path for path in sorted(HERE.rglob("test_*.py")) if not set(path.parents) & set(files)]
    found: list[tuple[float, list[str]]] = [(0.0, []) for _ in range(count)]
    for path in sorted(files, key=_seconds, reverse=True):
        spent, share = found.pop(0)
        found.append((spent + _seconds(path), [*share, str(path)]))
        found.sort(key=lambda share: share[0])
    return [share for _, share in found]


def _seconds(path: Path) -> float:
    return SECONDS.get(str(path.relative_to(HERE)), DEFAULT)


def _pytest(
    arguments: Sequence[str], output: IO[bytes] | None = None, archive: Path | None = None
) -> "subprocess.Popen[bytes]":
    env = None if archive is None else environment(archive)
    return subprocess.Popen(
        [sys.executable, "-m", "pytest", *arguments], cwd=ROOT, env=env, stdout=output, stderr=output
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
