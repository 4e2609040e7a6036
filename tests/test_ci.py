"""The checks of every change: which variables .ci/run gives the suite, and what the workflow runs."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_the_suite_gets_no_variable_of_the_shell_but_those_that_reach_the_index_and_what_is_installed(
    tmp_path: Path,
) -> None:
    for name in ("git", "openssl", "python3", "make"):
        program = tmp_path / name
        program.write_text("#!/bin/sh\n" + ("exec env\n" if name == "make" else ""))
        program.chmod(0o755)
    kept = {"HOME": "/home/a b", "PATH": f"{tmp_path}:/usr/bin:/bin", "PIP_INDEX_URL": "https://x/", "JAVA_HOME": ""}
    dropped = {"PYTHONUNBUFFERED": "1", "PYTHONPATH": "/x", "PYTEST_ADDOPTS": "-x", "MAKEFLAGS": "-i", "LANG": "de_DE"}
    printed = subprocess.run([ROOT / ".ci/run"], env=kept | dropped, capture_output=True, text=True, check=True).stdout
    found = dict(line.split("=", 1) for line in printed.splitlines())
    found.pop("PWD", None)  # set by sh
    assert found == kept | {"LANG": "C.UTF-8"}


def test_the_workflows_name_each_action_and_image_by_the_digest_of_its_content() -> None:
    """Who has stolen the rights to move a tag could run anything there."""
    workflows = [path.read_text(encoding="utf-8") for path in sorted((ROOT / ".github/workflows").glob("*.yml"))]
    used = [each for text in workflows for each in re.findall(r" (uses|image): (.*)", text)]
    assert len(workflows) == 2
    assert {kind for kind, _ in used} == {"uses", "image"}
    pinned = r"[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+|\w+:\d+@sha256:[0-9a-f]{64} # \w+-\d{8}"
    assert [each for _, each in used if re.fullmatch(pinned, each) is None] == []
