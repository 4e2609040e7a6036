"""Download a real ZooKeeper into the project: ``python -m zkwire.testing.fetch [VERSION] --into .zookeeper``.

This module knows Maven's command line, which jars a ZooKeeper server needs, and Debian's package as a last resort. It
leaves ``<into>/<version>/*.jar``, where ``zkwire.testing.real.installation`` looks. It must not know how a server is
configured or started.
"""

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from xml.etree import ElementTree

from zkwire.testing.real.installation import (
    DEBIAN_JARS,
    ZooKeeperMissingError,
    find_zookeeper,
    fits,
    versions_in,
)

DEFAULT_LINE = "3.9"
MAVEN_TIME_LIMIT = 600.0

# Jars that the server loads but that its pom does not include ("provided" scope). Their versions come from the parent
# pom of the same release. Before 3.6 the server needed neither.
PROVIDED_SINCE_3_6 = ("org.xerial.snappy:snappy-java", "io.dropwizard.metrics:metrics-core")

# The server logs through slf4j. slf4j-simple replaces the binding of its pom, because it logs to stderr and is
# configured by system properties alone.
LOGGING_BINDINGS = (
    "log4j:log4j",
    "org.slf4j:slf4j-log4j12",
    "ch.qos.logback:logback-classic",
    "ch.qos.logback:logback-core",
    "ch.qos.reload4j:reload4j",
    "org.slf4j:slf4j-reload4j",
)

# netty's native libraries name their platform at the end: netty-tcnative-...-linux-aarch_64.jar
NATIVE_JAR = re.compile(r"-((?:linux|osx|windows)-(?:x86_64|aarch_64|x86_32|riscv64))(?:-fedora)?\.jar$")

Say = Callable[[str], None]


class FetchError(RuntimeError):
    """ZooKeeper could not be downloaded; the message says what was tried and what to do."""


class _MavenError(Exception):
    """Maven ended with an error; the message is its own first line of explanation."""


def fetch(wanted: str | None, into: Path, *, say: Say = print) -> str:
    """Make sure that a ZooKeeper is in ``into`` and return its version.

    ``wanted`` is a version ("3.8.4"), taken as named; a line ("3.8"), of which the newest available is taken;
    or None for the newest of the default line. A version that is there already is kept. The download goes to a
    temporary folder, which is renamed at the end, so that an interrupted fetch leaves no incomplete version.

    When ``wanted`` is None and Maven fails, Debian's own package is installed if this is root on such a system: it is
    then found where Debian puts it, not in ``into``.

    Raises: FetchError, when no fitting version is available.
    """
    if wanted is not None and not re.fullmatch(r"\d+\.\d+(\.\d+)?", wanted):
        raise FetchError(f"{wanted!r} is neither a version such as 3.8.4 nor a line such as 3.8")
    name = wanted or DEFAULT_LINE
    into = into.absolute()  # Maven is run in another folder
    for version in versions_in(into):
        if fits(version, name):
            say(f"ZooKeeper {version} is already in {into}")
            return version
    try:
        return _fetch_by_maven(name, into, say)
    except _MavenError as error:
        if wanted is not None:
            raise FetchError(f"ZooKeeper {name} cannot be downloaded by Maven: {error}") from error
        say(f"Maven failed: {error}")
        return _install_from_debian(say)


def _fetch_by_maven(name: str, into: Path, say: Say) -> str:
    if shutil.which("mvn") is None:
        raise _MavenError("no mvn command on the path (install Maven)")
    into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=into) as folder:
        work = Path(folder)
        candidates = [name] if name.count(".") == 2 else _published_versions(name, work)
        reason = f"no version of line {name} is published"
        for version in candidates:
            jars = work / version
            try:
                _copy_jars(version, jars, work)
            except _MavenError as error:
                reason = str(error)
                say(f"skipped {version}: {reason}")
                continue
            _put_in_place(jars, into / version)
            say(f"ZooKeeper {version} is in {into / version}")
            return version
    raise _MavenError(reason)


def _published_versions(line: str, work: Path) -> list[str]:
    """Return the versions of a line that the registry lists, the newest first.

    A listed version may be incomplete (its parent pom may be missing), and a Maven version range would insist on the
    newest. So Maven gets a range without any version: it reads the list, keeps it in its local repository, and stops.
    """
    repository = _maven(work, "help:evaluate", "-Dexpression=settings.localRepository", "-DforceStdout")
    folder = Path(repository.strip(), "org/apache/zookeeper/zookeeper")
    pom = _write_pom(work, [("org.apache.zookeeper:zookeeper", "(,0.0.1)")])
    reason = "Maven keeps no list of ZooKeeper's versions"
    try:
        _maven(work, "-f", str(pom), "dependency:resolve")
    except _MavenError as error:
        reason = str(error)
    listed = {
        element.text or ""
        for metadata in folder.glob("maven-metadata-*.xml")
        for element in ElementTree.parse(metadata).iter("version")
    }
    if not listed:
        raise _MavenError(reason)
    releases = [version for version in listed if re.fullmatch(r"\d+\.\d+\.\d+", version) and fits(version, line)]
    return sorted(releases, key=_as_numbers, reverse=True)


def _copy_jars(version: str, jars: Path, work: Path) -> None:
    pom = _write_pom(work, [("org.apache.zookeeper:zookeeper", version)])
    _maven(work, "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={jars}", "-DincludeScope=runtime")
    (api,) = jars.glob("slf4j-api-*.jar")
    # A binding must have the version of its API, which only the resolved jar shows.
    extras: list[tuple[str, str | None]] = [("org.slf4j:slf4j-simple", api.stem.removeprefix("slf4j-api-"))]
    parent = None
    if _as_numbers(version) >= (3, 6):
        extras += [(artifact, None) for artifact in PROVIDED_SINCE_3_6]
        parent = version
    pom = _write_pom(work, extras, parent=parent)
    copy = ("dependency:copy-dependencies", "-DincludeScope=runtime", "-DexcludeTransitive=true")
    _maven(work, "-f", str(pom), *copy, f"-DoutputDirectory={jars}")
    for jar in jars.iterdir():
        native = NATIVE_JAR.search(jar.name)
        if native is not None and native[1] != _this_platform():
            jar.unlink()


def _write_pom(work: Path, artifacts: Sequence[tuple[str, str | None]], *, parent: str | None = None) -> Path:
    """Write a project that depends on the artifacts; those without a version get that of release ``parent``."""
    dependencies = []
    for artifact, version in artifacts:
        group, _, name = artifact.partition(":")
        stated = f"<version>{version}</version>" if version else ""
        without = "".join(
            f"<exclusion><groupId>{group}</groupId><artifactId>{name}</artifactId></exclusion>"
            for group, _, name in (binding.partition(":") for binding in LOGGING_BINDINGS)
        )
        dependencies.append(
            f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId>{stated}"
            f"<exclusions>{without}</exclusions></dependency>"
        )
    managed = (
        "<dependencyManagement><dependencies><dependency><groupId>org.apache.zookeeper</groupId><artifactId>parent</artifactId>"
        f"<version>{parent}</version><type>pom</type><scope>import</scope></dependency></dependencies></dependencyManagement>"
    )
    pom = work / "pom.xml"
    pom.write_text(
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>zkwire</groupId><artifactId>fetch</artifactId><version>0</version><packaging>pom</packaging>"
        f"{managed if parent else ''}<dependencies>{''.join(dependencies)}</dependencies></project>\n",
        encoding="utf-8",
    )
    return pom


def _maven(work: Path, *arguments: str) -> str:
    """Run Maven in ``work`` and return what it printed; raise _MavenError with its explanation when it fails."""
    # A jar without a valid checksum is refused: these jars are run.
    command = ["mvn", "--quiet", "--batch-mode", "--strict-checksums", "-Dstyle.color=never", *arguments]
    try:
        done = subprocess.run(
            command,
            cwd=work,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=MAVEN_TIME_LIMIT,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise _MavenError(f"mvn was still running after {error.timeout:.0f} s") from error
    # Some Maven versions write terminal codes even with --batch-mode.
    output = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout)
    if done.returncode != 0:
        # Find the first line that explains; Maven may print "[ERROR] [ERROR] Some problems were encountered" before
        # it.
        explained = re.search(r"^\[(?:ERROR|FATAL)\] (?!\[)(.+?)(?: -> \[Help.*)?$", output, re.MULTILINE)
        raise _MavenError(explained[1] if explained else f"mvn exited with {done.returncode} and printed no error")
    return output


def _put_in_place(jars: Path, home: Path) -> None:
    try:
        jars.rename(home)
    except OSError:
        # Another process has fetched the same version meanwhile: use that.
        if not any(home.glob("zookeeper-*.jar")):
            raise


def _install_from_debian(say: Say) -> str:
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        raise FetchError(
            "no ZooKeeper is available: install Maven and run `make zookeeper` again, install your system's zookeeper "
            "package, or set ZOOKEEPER_HOME to an unpacked ZooKeeper distribution"
        )
    say("installing the system's zookeeper package instead")
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for command in (["apt-get", "update"], ["apt-get", "install", "--yes", "--no-install-recommends", "zookeeper"]):
        done = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False
        )
        if done.returncode != 0:
            raise FetchError(f"`{' '.join(command)}` exited with {done.returncode}")
    try:
        found = find_zookeeper()
    except ZooKeeperMissingError as error:
        raise FetchError(f"the zookeeper package left no jars in {DEBIAN_JARS}") from error
    say(f"ZooKeeper {found.version} is in {DEBIAN_JARS}")
    return found.version


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
    if options.if_missing:
        try:
            found = find_zookeeper(options.version)
        except ZooKeeperMissingError:
            pass
        else:
            print(f"using {found}")
            return 0
    try:
        fetch(options.version, options.into)
    except FetchError as error:
        print(f"zkwire.testing.fetch: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
