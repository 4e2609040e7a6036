"""Finds the jars of a ZooKeeper, and the Java to run them, on this machine.

This module knows folders and the names of jars. It must not know how a server is configured or started.
"""

import os
import re
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path

# The folder that holds the package: in a checkout, the one that `make zookeeper` fills.
PROJECT = Path(__file__).resolve().parents[2]
DEBIAN_JARS = Path("/usr/share/java")
# Debian's zookeeper.jar names most of what it needs in its manifest. It leaves out a logger, and jars that netty
# needs for TLS.
DEBIAN_EXTRAS = ("slf4j-simple", "netty-codec", "netty-resolver", "netty-transport-native-unix-common")

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

    Looks at, in this order: the environment's ``ZOOKEEPER_HOME`` (an unpacked distribution);
    ``.zookeeper/<version>/`` in the current folder, in each folder above it, and beside the ``zkwire`` package, the
    newest first; Debian's package. ``version`` is an exact version ("3.8.4") or a line ("3.8"); None takes the first
    that is found. What is found is run: a ``.zookeeper`` in or above the current folder is left out when it belongs to
    another user than this one or root, or when everyone may write to it.

    Raises ZooKeeperMissingError when there is none that fits.
    """
    candidates = []
    home = os.environ.get("ZOOKEEPER_HOME")
    if home:
        candidates.append(_installed_in(Path(home)))
        if candidates[-1] is None:
            raise ZooKeeperMissingError(f"ZOOKEEPER_HOME is {home}, and no zookeeper jar is there or in its lib folder")
    here = Path.cwd()
    left_out = []
    for folder in dict.fromkeys((here, *here.parents, PROJECT)):
        store = folder / ".zookeeper"
        for name in versions_in(store):
            # A user who can write beside the package can change the package.
            distrust = None if folder == PROJECT else _distrust(store) or _distrust(store / name)
            if distrust is None:
                candidates.append(_installed_in(store / name))
            else:
                left_out.append(f"; {store / name} is left out, because {distrust}: set ZOOKEEPER_HOME to use it")
    candidates.append(_installed_by_debian())
    for candidate in candidates:
        if candidate is not None and (version is None or fits(candidate.version, version)):
            return candidate
    wanted = f"ZooKeeper {version}" if version else "ZooKeeper"
    command = f"python -m zkwire.testing.fetch {version}" if version else "make zookeeper"
    raise ZooKeeperMissingError(
        f"{wanted} is not on this machine: run `{command}`, or set ZOOKEEPER_HOME to an unpacked ZooKeeper distribution"
        + "".join(left_out)
    )


def _distrust(folder: Path) -> str | None:
    """Return why what is in `folder` must not be run, None if it may."""
    if os.name != "posix":  # RealServer says that it does not run there
        return None
    for status in (folder.lstat(), folder.stat()):  # a link, and what it leads to
        if status.st_uid not in (0, os.getuid()):
            return "it belongs to another user"
    return "others may write to it" if folder.stat().st_mode & stat.S_IWOTH else None


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
    for jar in jars:
        if match := _SERVER_JAR.fullmatch(jar.name):
            # A distribution's conf folder configures the logging that comes with it.
            conf = [home / "conf"] if (home / "conf").is_dir() else []
            return Installation(match[1], (jar, *jars, *conf))
    return None


def _installed_by_debian() -> Installation | None:
    for jar in DEBIAN_JARS.glob("zookeeper-*.jar"):
        if match := _SERVER_JAR.fullmatch(jar.name):
            return Installation(match[1], (jar, *(DEBIAN_JARS / f"{name}.jar" for name in DEBIAN_EXTRAS)))
    return None


def find_java() -> str:
    """Return the path of a `java` command.  Raises ZooKeeperMissingError when there is none."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=os.path.join(home, "bin") if home else None)
    if java is None:
        where = f"in JAVA_HOME ({home})" if home else "on the path"
        raise ZooKeeperMissingError(f"ZooKeeper needs Java, and no java command is {where}: install a Java runtime")
    return java
