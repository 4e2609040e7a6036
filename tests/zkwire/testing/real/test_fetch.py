"""The download of a ZooKeeper and of a Java: what is taken, what is refused, and what is said.

A stand-in replaces the package index and what comes from it, and the repository of jars is one on loopback. A run of
`make test` on a machine without a ZooKeeper shows that the real ones work.
"""

import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.jars import publish, served
from zkwire.testing import fetch as module
from zkwire.testing.fetch import DEFAULT_LINE, JAVA, PROVIDED_SINCE_3_6, FetchError, fetch, fetch_java, main
from zkwire.testing.real import installation
from zkwire.testing.real.installation import FETCHED_JAVA, OLDEST_JAVA, find_java, java_version
from zkwire.testing.real.repository import mirror_of_central

GROUP = "org/apache/zookeeper"
PROVIDED = [f"{group}:{name}:jar:1.1:compile" for name, group in PROVIDED_SINCE_3_6.items()]
SLF4J = "org.slf4j:slf4j-api:jar:2.0.13:compile"


def write_java(path: Path, version: str) -> Path:
    """Write a `java` command of which only the version can be asked."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-07-15' >&2\n", encoding="utf-8")
    path.chmod(0o755)
    return path


class Index:
    """Replaces the package index, jgo, and the releases in the repository of jars."""

    def __init__(self, files: Path, url: str) -> None:
        self.files = files
        self.url = url
        self.installed: list[str] = []
        self.repositories: set[str] = set()  # that jgo was given
        self._resolved: dict[str, list[str]] = {}

    def publish(self, version: str, *more: str, jute: bool = True, parent: bool = True) -> None:
        """Publish a release; `more` are lines of jgo for further jars."""
        names = ["zookeeper", "zookeeper-jute"] if jute else ["zookeeper"]
        self._resolved[version] = [f"org.apache.zookeeper:{name}:jar:{version}:compile" for name in names]
        self._resolved[version] += [SLF4J, *more]
        for line in (*self._resolved[version], *PROVIDED, SLF4J.replace("-api", "-simple")):
            group, name, _, *classifier, number, _ = line.split(":")
            jar = "-".join([name, number, *classifier])
            publish(self.files, f"{group.replace('.', '/')}/{name}/{number}/{jar}.jar", b"jar")
        listed = "".join(f"<version>{known}</version>" for known in ("3.9.0-beta", *self._resolved))
        publish(self.files, f"{GROUP}/zookeeper/maven-metadata.xml", f"<metadata>{listed}</metadata>".encode())
        pom = f"<groupId>org.apache.zookeeper</groupId><artifactId>parent</artifactId><version>{version}</version>"
        publish(self.files, self._pom("zookeeper", version), f"<project><parent>{pom}</parent></project>".encode())
        if parent:
            publish(self.files, self._pom("parent", version), b"<project/>")

    def resolve(self, version: str, copy: Path) -> list[str]:
        """Answer as jgo does, and keep the poms in `copy`."""
        for name in ("zookeeper", "parent"):
            pom = self._pom(name, version)
            if (self.files / pom).exists():
                (copy / pom).parent.mkdir(parents=True)
                (copy / pom).write_bytes((self.files / pom).read_bytes())
        return self._resolved[version]

    @staticmethod
    def _pom(name: str, version: str) -> str:
        return f"{GROUP}/{name}/{version}/{name}-{version}.pom"


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    with served(tmp_path / "served") as url:
        index = Index(tmp_path / "served", url)

        class Tools:
            def __init__(self, folder: Path) -> None:
                folder.mkdir()

            def install(self, requirement: str, *options: str) -> None:
                index.installed.append(requirement)
                if requirement == JAVA:
                    write_java(Path(options[-1], *FETCHED_JAVA.parts[1:]), "21.0.8")

            def run(self, *arguments: str) -> str:
                if arguments == ("-c", module.PRINT_CENTRAL):
                    return f"{index.url}\n"
                options = dict(pairwise(arguments))
                index.repositories.add(options["--repository"].removeprefix("central:"))
                if "--direct" in arguments:
                    return "\n   ".join(["zkwire:fetch:pom:0", *PROVIDED])
                version = arguments[-1].removeprefix("org.apache.zookeeper:zookeeper:").removesuffix("!")
                return "\n   ".join(index.resolve(version, Path(options["--repo-cache"])))

        monkeypatch.setattr(module, "_Tools", Tools)
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
    index.publish(
        "3.9.4",
        "io.netty:netty-native:jar:linux-x86_64:4.1.0.Final:runtime",
        "io.netty:netty-native:jar:osx-aarch_64:4.1.0.Final:runtime",
        "ch.qos.logback:logback-classic:jar:1.3.15:compile",
        "junit:junit:jar:4.13:test",
    )
    assert fetch("3.9.4", Path(".zookeeper")) == "3.9.4"
    assert jars("3.9.4") == {
        "zookeeper-3.9.4.jar",
        "zookeeper-jute-3.9.4.jar",
        "slf4j-api-2.0.13.jar",
        "slf4j-simple-2.0.13.jar",
        "snappy-java-1.1.jar",
        "metrics-core-1.1.jar",
        "netty-native-4.1.0.Final-linux-x86_64.jar",
    }
    assert [path.name for path in Path(".zookeeper").iterdir()] == ["3.9.4"]
    assert index.installed == [module.RESOLVER]
    assert index.repositories == {index.url}


@pytest.mark.usefixtures("with_java")
def test_the_newest_complete_release_of_a_line_is_taken(index: Index, capsys: pytest.CaptureFixture[str]) -> None:
    index.publish("3.9.9")
    index.publish("3.9.10")
    index.publish("3.10.0")
    index.publish("3.9.11", jute=False)
    index.publish("3.9.12", parent=False)
    assert fetch("3.9", Path(".zookeeper")) == "3.9.10"
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("skipped 3.9.12: zookeeper-3.9.12.pom needs org.apache.zookeeper:parent:3.9.12")
    assert said[1].startswith("skipped 3.9.11: jgo finds no zookeeper-jute for ZooKeeper 3.9.11")
    assert fetch("3.9", Path(".zookeeper")) == "3.9.10"
    assert capsys.readouterr().out.startswith("ZooKeeper 3.9.10 is already in")


@pytest.mark.usefixtures("with_java")
@pytest.mark.parametrize("name", ["zookeeper-3.9.5.pom", "zookeeper-3.9.5.jar"])
def test_what_has_no_valid_checksum_is_refused(index: Index, name: str) -> None:
    index.publish("3.9.5")
    publish(index.files, f"{GROUP}/zookeeper/3.9.5/{name}", b"<project/>", checksum=b"0" * 40)
    with pytest.raises(
        FetchError, match=rf"ZooKeeper 3\.9\.5 cannot be downloaded: .*{name} does not have the checksum"
    ):
        fetch("3.9.5", Path(".zookeeper"))
    assert list(Path(".zookeeper").iterdir()) == []


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
