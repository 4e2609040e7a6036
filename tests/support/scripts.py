"""Run an example of the documentation as a user does: as a script in a process of its own."""

import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]


def run_script(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Write `text` into a file in `folder` and run it; fail unless it ends well."""
    script = folder / "example.py"
    script.write_text(text, encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, "-W", "error", script],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran
