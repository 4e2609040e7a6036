"""The download of a ZooKeeper: what it asks of Maven.  A run of the tests that fetches one shows that it works."""

import os
from pathlib import Path

import pytest

from zkwire.testing.fetch import FetchError, fetch

RECORDING = """#!/bin/sh
echo "$@" >> "$(dirname "$0")/asked"
echo "[ERROR] no registry today"
exit 1
"""


def test_maven_refuses_what_has_no_valid_checksum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    maven = tmp_path / "mvn"
    maven.write_text(RECORDING)
    maven.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(FetchError, match="no registry today"):
        fetch("3.9.5", tmp_path / "into")
    asked = (tmp_path / "asked").read_text().splitlines()
    assert asked
    assert all("--strict-checksums" in command.split() for command in asked)
