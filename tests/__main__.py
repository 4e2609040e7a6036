"""`python -m tests`: the whole suite in two pytest processes side by side, for machines with two cores.

With arguments, one pytest that gets them.  Each process has servers of its own; what they print is shown one behind the
other, the first as it comes.
"""

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, Final

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parent
# About as long as all the others together.
FIRST: Final = ("faults", "ensembles", "differential", "testing")


def main(arguments: list[str]) -> int:
    """Return the exit status: 0 when all tests have passed."""
    if arguments:
        return _pytest(arguments).wait()
    chosen = [path for path in sorted(HERE.iterdir()) if path.name.startswith("test_") or any(path.rglob("test_*.py"))]
    first = [str(path) for path in chosen if path.name in FIRST]
    second = [str(path) for path in chosen if path.name not in FIRST]
    with tempfile.TemporaryFile() as output:
        beside = _pytest(second, output)
        try:
            status = _pytest(first).wait()
        finally:
            status_beside = beside.wait()
            output.seek(0)
            sys.stdout.buffer.write(output.read())
            sys.stdout.flush()
    return status or status_beside


def _pytest(arguments: list[str], output: IO[bytes] | None = None) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-m", "pytest", *arguments], cwd=ROOT, stdout=output, stderr=output)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
