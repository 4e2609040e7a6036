"""docs/threads.md runs as printed, except for the address of the server."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from zkwire.blocking import Portal
from zkwire.testing import Server

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "threads.md").read_text(encoding="utf-8"), re.DOTALL)
PRINTED = [
    "/greeting\nthe fencing token is a number: True\n",
    "charged 7, certain for True\n",
]


@pytest.mark.parametrize("number", range(2))
def test_an_example_runs(number: int, tmp_path: Path) -> None:
    assert len(EXAMPLES) == len(PRINTED)
    script = tmp_path / "example.py"
    with Portal() as portal, portal.enter(Server()) as server:
        script.write_text(EXAMPLES[number].replace("127.0.0.1:2181", server.hosts), encoding="utf-8")
        ran = subprocess.run(
            [sys.executable, "-W", "error", script],
            cwd=ROOT,
            env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == PRINTED[number]
