"""`python -m tests`: the whole suite in several processes side by side, because tests wait for servers.

`python -m tests quick` leaves out what needs Java and what is marked `slow`, and tries fewer examples.  Other arguments
go to pytest, which then runs in one process.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.support import turns
from tests.support.archive import environment
from tests.support.examples import QUICK

ROOT: Final = Path(__file__).parent.parent
SIDE_BY_SIDE: Final = ("-p", turns.__name__, "--processes")
# More processes than processors, because tests wait: for servers, and for time to pass.
WITH_SERVERS: Final = "5"
WITHOUT_SERVERS: Final = "6"


def main(arguments: list[str]) -> int:
    """Return the exit status: 0 when all tests have passed."""
    if arguments[:1] == ["quick"]:
        options = ("-m", "not java and not slow", "--hypothesis-profile", QUICK)
        return _pytest(*SIDE_BY_SIDE, WITHOUT_SERVERS, *options, *arguments[1:])
    if shutil.which("openssl") is None:  # said now, and not by a test in ten minutes
        print("the tests of TLS need the openssl command: install OpenSSL 3", file=sys.stderr)
        return 2
    if arguments:
        return _pytest(*arguments)
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder, "archive.jsa")
        making = subprocess.Popen([sys.executable, "-m", "tests.support.archive", archive], cwd=ROOT)
        try:
            return _pytest(*SIDE_BY_SIDE, WITH_SERVERS, "-m", "not moment", env=environment(archive))
        finally:
            making.wait()


def _pytest(*arguments: str, env: dict[str, str] | None = None) -> int:
    return subprocess.call([sys.executable, "-m", "pytest", *arguments], cwd=ROOT, env=env or dict(os.environ))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
