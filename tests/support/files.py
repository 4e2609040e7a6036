"""The files of the project: in a clone those that git tracks, in an unpacked sdist all but what the tools make."""

import subprocess
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]

# What the targets of the Makefile and the build put into the folder of an unpacked sdist.
_MADE: Final = ("__pycache__", "build", "dist")
_ALLOWED_DOTTED: Final = (".ci", ".github", ".gitignore")


def project_files(root: Path = ROOT) -> list[str]:
    """Return the paths of the project's files, relative to `root`."""
    if (root / ".git").exists():
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True).stdout
        return [name for name in listed.split("\0") if (root / name).is_file()]
    files = [path.relative_to(root) for path in root.rglob("*") if path.is_file()]
    return [str(file) for file in files if not any(map(_is_made, file.parts))]


def _is_made(part: str) -> bool:
    dotted = part.startswith(".") and part not in _ALLOWED_DOTTED
    return dotted or part in _MADE or part.endswith(".egg-info")
