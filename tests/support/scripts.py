"""Run an example of the documentation as a user does: in a process of its own, in which warnings are errors."""

import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
_ENVIRONMENT: Final = {
    "PYTHONPATH": str(ROOT),
    "PATH": "/usr/bin:/bin",
    "PYTHONIOENCODING": "utf-8",
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
}


def run_script(text: str, folder: Path) -> str:
    """Write `text` into a file in `folder` and run it; return what it prints, and fail unless it ends well."""
    (folder / "example.py").write_text(text, encoding="utf-8")
    return run_python("example.py", folder=folder)


def run_python(*command: str, folder: Path) -> str:
    """Run `python *command` in `folder`; return what it prints, and fail unless it ends well."""
    words = [sys.executable, "-W", "error", *command]
    ran = subprocess.run(words, cwd=folder, env=_ENVIRONMENT, capture_output=True, encoding="utf-8", timeout=120)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout
