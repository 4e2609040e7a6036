"""`python -m tests.release BUILDER` builds the wheel and the sdist into dist/: are they fit to be published?

BUILDER is a Python that has `build` and `setuptools`.  Two builds must give the same bytes.  The wheel must hold the
two packages and what is in share/, nothing else, and require nothing; the sdist must hold every file that the
repository tracks; with each Python in an empty environment the wheel must install, import, and run the first example
and the command.
"""

import gzip
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from email.parser import Parser
from pathlib import Path

from tests.support.files import project_files

ROOT = Path(__file__).parent.parent
PACKAGES = {"zkwire", "recipes"}
PYTHONS = ("3.11", "3.12", "3.13", "3.14")


def main(builder: str) -> int:
    """Print what is wrong, and return the exit status."""
    tracked = set(project_files())
    when = int(subprocess.check_output(["git", "log", "-1", "--format=%ct"], cwd=ROOT))
    wheel, sdist = built(builder, ROOT / "dist", when)
    again = built(builder, ROOT / "build" / "again", when)
    in_place = ROOT / "build" / "here"
    shutil.rmtree(in_place, ignore_errors=True)
    _build(builder, ROOT, in_place, when, "wheel")  # as pip does
    (here,) = in_place.glob("*.whl")
    pythons = {version: python for version in PYTHONS if (python := found(version)) is not None}
    wrong = [
        *(
            f"a second build of {one.name} has other bytes"
            for one, two in zip((wheel, sdist), again, strict=True)
            if one.read_bytes() != two.read_bytes()
        ),
        *(line for each in (wheel, here) for line in wrong_in_wheel(each, tracked)),
        *wrong_in_sdist(sdist, tracked),
        *(f"Python {version}: {line}" for version, python in pythons.items() for line in wrong_with(python, wheel)),
    ]
    print("\n".join(wrong) or f"{wheel.name} and {sdist.name} are fit to be published")
    print(f"tried with Python {', '.join(pythons)}; not here: {', '.join({*PYTHONS} - {*pythons}) or 'none'}")
    return 1 if wrong else 0


def built(builder: str, into: Path, when: int) -> tuple[Path, Path]:
    """Build the wheel and the sdist from the project's files alone, as of the time `when`, and return them."""
    shutil.rmtree(into, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        for name in project_files():
            copy = Path(folder, name)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy)
            copy.chmod(_mode(copy.stat().st_mode))
        _build(builder, Path(folder), into, when, "sdist")
        _build(builder, Path(folder), into, when, "wheel")
    (wheel,), (sdist,) = into.glob("*.whl"), into.glob("*.tar.gz")
    sdist.write_bytes(repacked(sdist, when))
    return wheel, sdist


def _build(builder: str, folder: Path, into: Path, when: int, kind: str) -> None:
    command = [builder, "-m", "build", "--no-isolation", f"--{kind}", "--outdir", str(into), str(folder)]
    environment = os.environ | {"SOURCE_DATE_EPOCH": str(when)}  # which the wheel's times are
    subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.DEVNULL)


def _mode(mode: int) -> int:
    return 0o755 if mode & 0o100 else 0o644


def repacked(sdist: Path, when: int) -> bytes:
    """Return the archive without what differs from one build to the next: times, owners, modes, and its own order."""
    packed = io.BytesIO()
    with (
        tarfile.open(sdist) as old,
        gzip.GzipFile(filename="", mode="wb", fileobj=packed, mtime=when) as outer,
        tarfile.open(mode="w", fileobj=outer, format=tarfile.PAX_FORMAT) as new,
    ):
        for member in sorted(old.getmembers(), key=lambda member: member.name):
            alike = tarfile.TarInfo(member.name)
            alike.type, alike.size, alike.mtime, alike.mode = member.type, member.size, when, _mode(member.mode)
            new.addfile(alike, old.extractfile(member))
    return packed.getvalue()


def wrong_in_wheel(wheel: Path, tracked: set[str]) -> list[str]:
    """Return what does not belong into the wheel, and what is missing there."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        fields = Parser().parsestr(archive.read(metadata).decode())
    relative = re.findall(r"\]\((?!https?://|#)(.*?)\)", str(fields.get_payload()))
    files = {re.sub(r"^[^/]+\.data/data/", "", name) for name in names if ".dist-info/" not in name}
    wanted = {name for name in tracked if name.startswith("share/")} | {f"{top}/py.typed" for top in PACKAGES}
    required = [line for line in fields.get_all("Requires-Dist") or () if "extra ==" not in line]
    return [
        *(f"the wheel has {name}" for name in sorted(files - tracked)),  # left by an earlier build
        *(f"the wheel has {name}" for name in sorted(files) if name.partition("/")[0] not in {*PACKAGES, "share"}),
        *(f"the wheel lacks {name}" for name in sorted(wanted - files)),
        *(f"the wheel requires {line}" for line in required),
        *(f"the page of the index has the link {link}, which leads nowhere" for link in relative),
    ]


def wrong_in_sdist(sdist: Path, tracked: set[str]) -> list[str]:
    """Return the files of the repository that the sdist lacks."""
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    return [f"the sdist lacks {name}" for name in sorted(tracked - names)]


def found(version: str) -> str | None:
    """Return the Python of this version that can make an environment, None if there is none here."""
    places: list[str | Path | None] = [
        shutil.which(f"python{version}"),
        *Path.home().glob(f".pyenv/versions/{version}.*/bin/python"),
    ]
    works = ["-c", "import ensurepip, venv"]  # a shim of pyenv may have no version to start
    for place in places:
        if place and subprocess.run([place, *works], capture_output=True, check=False).returncode == 0:
            return str(place)
    return None


def wrong_with(python: str, wheel: Path) -> Iterator[str]:
    """Install the wheel into an empty environment, use it, and yield what failed."""
    example = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert example is not None
    with tempfile.TemporaryDirectory() as folder:
        bin_ = Path(folder, "bin")
        mine = str(bin_ / "python")
        for command in (
            [python, "-m", "venv", folder],
            [mine, "-m", "pip", "install", "-q", "--no-index", "--disable-pip-version-check", str(wheel.resolve())],
            [mine, "-c", "import zkwire, recipes, zkwire.testing, zkwire.blocking"],
            [mine, "-c", example.group(1)],
            [str(bin_ / "zkwire"), "--help"],
            [str(bin_ / "zklock"), "--help"],
        ):
            ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
            if ran.returncode:
                yield f"{' '.join(command[:4])} failed: {ran.stderr.strip()}"
                return


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
