"""The download of a ZooKeeper and of a Java: what is taken, what is refused, and what is said.

A stand-in replaces the package index and what comes from it, and the repository of jars is one on loopback. A run of
`make test` on a machine without a ZooKeeper shows that the real ones work.
"""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.jars import served
from zkwire.testing import fetch as module
from zkwire.testing.fetch import DEFAULT_LINE, JAVA, FetchError, fetch, fetch_java, main
from zkwire.testing.real import installation
from zkwire.testing.real.installation import FETCHED_JAVA, OLDEST_JAVA, find_java, java_version
from zkwire.testing.real.repository import mirror_of_central


def write_java(path: Path, version: str) -> Path:
    """Write a `java` command of which only the version can be asked."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-07-15' >&2\n", encoding="utf-8")
    path.chmod(0o755)
    return path


class Index:
    """Replaces the package index, and the releases in the repository of jars."""

    def __init__(self, url: str, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.url = url
        self.installed: list[str] = []
        self._files = files
        self._jars: dict[str, dict[str, str]] = {}
        monkeypatch.setattr(module, "JARS", self._jars)

    def publish(self, version: str, *more: str, content: bytes = b"jar") -> None:
        """Publish a release of an archive, of `more` jars, and of one whose digest is that of b"jar"."""
        self._jars[version] = {}
        for name in (f"zookeeper-{version}.jar", *more):
            path = f"org/apache/{version}/{name}"
            self._jars[version][path] = hashlib.sha256(b"jar").hexdigest()
            (self._files / path).parent.mkdir(parents=True, exist_ok=True)
            (self._files / path).write_bytes(content)


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    with served(tmp_path / "served") as url:
        index = Index(url, tmp_path / "served", monkeypatch)

        def install(requirement: str, into: Path, *options: str) -> None:
            index.installed.append(requirement)
            if requirement == JAVA:
                write_java(Path(into, *FETCHED_JAVA.parts[1:]), "21.0.8")
            else:
                (into / "jgo").mkdir(parents=True)
                central = f"class MavenContext:\n    remote_repos = {{'central': {url!r}}}\n"
                (into / "jgo" / "maven.py").write_text(central, encoding="utf-8")

        monkeypatch.setattr(module, "_install", install)
        monkeypatch.setattr(module, "MAVEN_SETTINGS", tmp_path / "settings.xml")
        monkeypatch.setattr(module, "_this_platform", lambda: "linux-x86_64")
        yield index


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of the `java` command of a machine that has neither a Java nor a ZooKeeper yet."""
    for name in ("JAVA_HOME", "ZOOKEEPER_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}/nowhere")
    monkeypatch.setattr(installation, "PROJECT", tmp_path / "project")
    monkeypatch.setattr(installation, "DEBIAN_JARS", tmp_path / "debian")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "bin" / "java"


@pytest.fixture
def with_java(bare: Path) -> Path:
    """The same machine with a Java."""
    return write_java(bare, "17.0.15")


def jars(version: str) -> set[str]:
    return {jar.name for jar in Path(".zookeeper", version).glob("*.jar")}


@pytest.mark.usefixtures("with_java")
def test_a_release_comes_with_what_a_server_needs_here(index: Index) -> None:
    index.publish("3.9.4", "snappy-1.1.jar", "native-4.1-linux-x86_64.jar", "native-4.1-osx-aarch_64.jar")
    assert fetch("3.9.4", Path(".zookeeper")) == "3.9.4"
    assert jars("3.9.4") == {"zookeeper-3.9.4.jar", "snappy-1.1.jar", "native-4.1-linux-x86_64.jar"}
    assert [path.name for path in Path(".zookeeper").iterdir()] == ["3.9.4"]
    assert index.installed == [module.JGO]


@pytest.mark.usefixtures("with_java")
def test_the_newest_release_of_a_line_is_taken(index: Index, capsys: pytest.CaptureFixture[str]) -> None:
    for version in ("3.9.9", "3.9.10", "3.10.0"):
        index.publish(version)
    assert fetch("3.9", Path(".zookeeper")) == "3.9.10"
    capsys.readouterr()
    assert fetch("3.9", Path(".zookeeper")) == "3.9.10"
    assert capsys.readouterr().out.startswith("ZooKeeper 3.9.10 is already in")
    with pytest.raises(FetchError, match=r"ZooKeeper 3\.9\.1 is not one of 3\.9\.9, 3\.9\.10, 3\.10\.0"):
        fetch("3.9.1", Path(".zookeeper"))


@pytest.mark.usefixtures("with_java")
@pytest.mark.parametrize("is_mirror", [False, True])
def test_a_jar_with_another_digest_is_refused(index: Index, is_mirror: bool) -> None:
    if is_mirror:
        module.MAVEN_SETTINGS.write_text(f"<settings><mirrors>{mirror('*', index.url)}</mirrors></settings>")
    index.publish("3.9.5", content=b"evil")
    with pytest.raises(
        FetchError, match=r"ZooKeeper 3\.9\.5 cannot be downloaded: .*5\.jar has the SHA-256 \w{64}, not"
    ):
        fetch("3.9.5", Path(".zookeeper"))
    assert list(Path(".zookeeper").iterdir()) == []
    assert index.installed == ([] if is_mirror else [module.JGO])


def test_each_line_of_the_list_names_its_newest_release_last() -> None:
    versions = [tuple(map(int, version.split("."))) for version in module.JARS]
    assert versions == sorted(versions)


def mirror(mirrored: str, url: str) -> str:
    return f"<mirror><mirrorOf>{mirrored}</mirrorOf><url>{url}</url></mirror>"


@pytest.mark.parametrize(
    ("mirrors", "url"),
    [
        ("", None),
        (mirror("*", " http://m/a "), "http://m/a"),
        (mirror("other", "http://m/a") + mirror("other, central", "http://m/b"), "http://m/b"),
        (mirror("*,!central", "http://m/a"), None),
    ],
)
def test_the_mirror_of_mavens_settings_is_used(tmp_path: Path, mirrors: str, url: str | None) -> None:
    settings = f"<settings><mirrors>{mirrors}</mirrors></settings>"
    (tmp_path / "settings.xml").write_text(settings, encoding="utf-8")
    assert mirror_of_central(tmp_path / "settings.xml") == url


# Java


def test_a_machine_without_java_gets_one(index: Index, bare: Path) -> None:
    fetch_java(Path(".zookeeper"))
    assert index.installed == [JAVA]
    assert java_version(find_java()) == 21
    assert find_java() == str(Path(".zookeeper", FETCHED_JAVA).absolute())
    fetch_java(Path(".zookeeper"))
    assert index.installed == [JAVA]


@pytest.mark.parametrize(("version", "fits"), [("1.8.0_402", False), ("10.0.2", False), ("11", True), ("25-ea", True)])
def test_a_java_that_is_too_old_is_not_used(index: Index, bare: Path, version: str, fits: bool) -> None:
    assert OLDEST_JAVA == 11
    write_java(bare, version)
    fetch_java(Path(".zookeeper"))
    assert index.installed == ([] if fits else [JAVA])
    assert (find_java() == str(bare)) is fits


def test_a_java_home_that_does_not_fit_is_refused_and_not_replaced(
    index: Index, bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(bare.parents[1]))
    with pytest.raises(FetchError, match=r"no java command is in JAVA_HOME .* or unset it"):
        fetch_java(Path(".zookeeper"))
    write_java(bare, "1.8.0")
    with pytest.raises(FetchError, match="Java 8: set JAVA_HOME to a Java 11 or newer, or unset it"):
        fetch_java(Path(".zookeeper"))
    assert index.installed == []


# The command


@pytest.mark.usefixtures("with_java")
def test_an_older_line_does_not_stand_in_for_the_default_one(index: Index, capsys: pytest.CaptureFixture[str]) -> None:
    index.publish("3.8.4")
    index.publish(f"{DEFAULT_LINE}.5")
    assert main(["3.8.4"]) == 0
    assert main(["--if-missing"]) == 0
    assert jars(f"{DEFAULT_LINE}.5")
    assert main(["--if-missing"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith(f"using ZooKeeper {DEFAULT_LINE}.5")
