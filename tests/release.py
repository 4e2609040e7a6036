"""`python -m tests.release dist`: are the wheel and the sdist in that folder fit to be published?

The wheel must hold the two packages and what is in share/, nothing else, and require nothing; the sdist must hold every
file that the repository tracks; in an empty environment the wheel must install, import, and run the first example and
the command.
"""

import re
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from email.parser import Parser
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = {"zkwire", "recipes"}


def main(folder: str) -> int:
    """Print what is wrong, and return the exit status."""
    (wheel,) = Path(folder).glob("*.whl")
    (sdist,) = Path(folder).glob("*.tar.gz")
    tracked = tracked_files()
    wrong = [*wrong_in_wheel(wheel, tracked), *wrong_in_sdist(sdist, tracked), *wrong_when_installed(wheel)]
    print("\n".join(wrong) or f"{wheel.name} and {sdist.name} are fit to be published")
    return 1 if wrong else 0


def wrong_in_wheel(wheel: Path, tracked: set[str]) -> list[str]:
    """Return what does not belong into the wheel, and what is missing there."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        fields = Parser().parsestr(archive.read(metadata).decode())
    files = {re.sub(r"^[^/]+\.data/data/", "", name) for name in names if ".dist-info/" not in name}
    wanted = {name for name in tracked if name.startswith("share/")} | {f"{top}/py.typed" for top in PACKAGES}
    required = [line for line in fields.get_all("Requires-Dist") or () if "extra ==" not in line]
    return [
        *(f"the wheel has {name}" for name in sorted(files - tracked)),  # left by an earlier build
        *(f"the wheel has {name}" for name in sorted(files) if name.partition("/")[0] not in {*PACKAGES, "share"}),
        *(f"the wheel lacks {name}" for name in sorted(wanted - files)),
        *(f"the wheel requires {line}" for line in required),
    ]


def tracked_files() -> set[str]:
    """Return the paths of all files that the repository tracks."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True)
    return set(listed.stdout.splitlines())


def wrong_in_sdist(sdist: Path, tracked: set[str]) -> list[str]:
    """Return the files of the repository that the sdist lacks."""
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    return [f"the sdist lacks {name}" for name in sorted(tracked - names)]


def wrong_when_installed(wheel: Path) -> list[str]:
    """Install the wheel into an empty environment, use it, and return what failed."""
    example = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert example is not None
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = str(Path(folder, "bin", "python"))
        commands = [
            [python, "-m", "pip", "install", "-q", "--no-index", "--disable-pip-version-check", str(wheel.resolve())],
            [python, "-c", "import zkwire, recipes, zkwire.testing, zkwire.blocking"],
            [python, "-c", example.group(1)],
            [str(Path(folder, "bin", "zkwire")), "--help"],
            [str(Path(folder, "bin", "zklock")), "--help"],
        ]
        for command in commands:
            ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
            if ran.returncode:
                return [f"{' '.join(command[:4])} failed: {ran.stderr.strip()}"]
    return []


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
