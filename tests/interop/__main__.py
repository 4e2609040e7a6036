"""`python -m tests.interop`: kazoo, Curator, go-zk and the Rust client share locks and more with our recipes: lines.py.

None of them is a dependency of zkwire: they are fetched.  The exit status is 1 when a trial fails and 2 when something
that it needs is missing: a package index for pip, go or cargo, a repository for Maven, or Java.
"""

import asyncio
import sys
import tempfile
from pathlib import Path

from tests.interop import lines

if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="zkwire-interop-") as folder:
        sys.exit(asyncio.run(lines.play(Path(folder))))
