"""What `.ci/run` gives to the suite: nothing of the shell that it was started from changes how Python runs."""

import os
import subprocess
from pathlib import Path

RUN = Path(__file__).parents[1] / ".ci" / "run"


def test_the_suite_gets_no_variable_that_python_or_pytest_obeys(tmp_path: Path) -> None:
    made = tmp_path / "make"
    made.write_text("#!/bin/sh\nenv\n", encoding="utf-8")
    made.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    shell = os.environ | {"PATH": path, "PYTHONUNBUFFERED": "1", "PYTEST_ADDOPTS": "-x", "CI": "true"}
    printed = subprocess.run(["bash", RUN], env=shell, capture_output=True, text=True, check=True).stdout
    names = {line.partition("=")[0] for line in printed.splitlines()}
    assert {"HOME", "PATH", "LANG", "CI"} <= names
    assert not [name for name in names if name.startswith(("PYTHON", "PYTEST"))]
