"""The list of the project's files where git knows nothing: in an unpacked sdist."""

from pathlib import Path

from tests.support.files import project_files


def test_without_git_all_files_count_but_those_that_tools_make(tmp_path: Path) -> None:
    ours = {"README.md", ".gitignore", ".ci/run", "docs/client.md", "zkwire/__init__.py"}
    made = {".venv/bin/python", "zkwire/__pycache__/a.pyc", "dist/a.whl", "build/lib/a.py", "zkwire.egg-info/PKG-INFO"}
    for name in ours | made:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert set(project_files(tmp_path)) == ours
