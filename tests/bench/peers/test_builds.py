"""bench/peers/builds.py: what is missing is said, and where the files are that say which versions are used."""

import sys
from pathlib import Path

import pytest

from bench.peers import builds
from bench.peers.builds import MissingError


def test_a_command_that_fails_is_reported_with_what_it_printed() -> None:
    with pytest.raises(MissingError, match=r"pip: no such package"):
        builds.run([sys.executable, "-c", "import sys; sys.exit('no such package')"], "pip")
    with pytest.raises(MissingError, match=r"pip: exit status 3"):
        builds.run([sys.executable, "-c", "import sys; sys.exit(3)"], "pip")
    with pytest.raises(MissingError, match=r"pip: .*no-such-command"):
        builds.run(["no-such-command"], "pip")


@pytest.mark.parametrize("build", [builds.with_go_zk, builds.with_rust_client, builds.with_curator])
def test_without_its_tools_no_client_is_built(build: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert callable(build)
    with pytest.raises(MissingError, match="needs the command"):
        build(tmp_path / "main", tmp_path)
    assert list(tmp_path.iterdir()) == []
