"""Downloads from a repository of jars: what has no valid checksum is refused."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.jars import publish, served
from zkwire.testing.real.repository import Artifact, Repository, RepositoryError, mirror_of_central

JAR = Artifact("org.example", "thing", "1.2", "linux-x86_64")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """The files that the repository serves."""
    return tmp_path / "served"


@pytest.fixture
def repository(files: Path) -> Iterator[Repository]:
    with served(files) as url:
        yield Repository(url + "/")


def test_a_jar_is_downloaded_under_its_name(repository: Repository, files: Path, tmp_path: Path) -> None:
    assert JAR.path == "org/example/thing/1.2/thing-1.2-linux-x86_64.jar"
    other = Artifact("org.example", "other", "3")
    publish(files, JAR.path, b"jar")
    # Some checksum files name the file, too.
    publish(files, other.path, b"", hashlib.sha1(b"").hexdigest().upper().encode() + b"  other-3.jar\n")
    repository.download([JAR, other], tmp_path)
    assert (tmp_path / "thing-1.2-linux-x86_64.jar").read_bytes() == b"jar"
    assert (tmp_path / "other-3.jar").read_bytes() == b""


@pytest.mark.parametrize(
    ("checksum", "refusal"),
    [
        (hashlib.sha1(b"another").hexdigest().encode(), "does not have the checksum"),
        (b"<html>later</html>", "is no checksum"),
        (b"", "is no checksum"),
    ],
)
def test_a_jar_without_a_valid_checksum_is_refused(
    repository: Repository, files: Path, tmp_path: Path, checksum: bytes, refusal: str
) -> None:
    publish(files, JAR.path, b"jar", checksum)
    with pytest.raises(RepositoryError, match=refusal):
        repository.download([JAR], tmp_path)
    assert not (tmp_path / JAR.file).exists()


def test_a_jar_whose_checksum_is_not_published_is_refused(repository: Repository, files: Path, tmp_path: Path) -> None:
    publish(files, JAR.path, b"jar")
    (files / f"{JAR.path}.sha1").unlink()
    with pytest.raises(RepositoryError, match=r"thing-1\.2-linux-x86_64\.jar\.sha1 is not there: 404"):
        repository.download([JAR], tmp_path)


def test_files_of_another_program_are_compared_too(repository: Repository, files: Path, tmp_path: Path) -> None:
    publish(files, "org/example/a.pom", b"<project/>")
    copy = tmp_path / "copy"
    pom = copy / "org" / "example" / "a.pom"
    pom.parent.mkdir(parents=True)
    pom.write_bytes(b"<project/>")
    repository.verify(copy, [pom])
    pom.write_bytes(b"<project></project>")
    with pytest.raises(RepositoryError, match=r"a\.pom does not have the checksum"):
        repository.verify(copy, [pom])


def test_the_published_versions_are_listed(repository: Repository, files: Path) -> None:
    listed = "<metadata><versioning><versions><version>3.8.4</version><version>3.9.5</version></versions></versioning>"
    publish(files, "org/example/thing/maven-metadata.xml", f"{listed}</metadata>".encode())
    assert repository.versions("org.example", "thing") == ["3.8.4", "3.9.5"]
    publish(files, "org/example/thing/maven-metadata.xml", b"later")
    with pytest.raises(RepositoryError, match="is no XML"):
        repository.versions("org.example", "thing")


def test_a_repository_that_does_not_answer_is_named(tmp_path: Path) -> None:
    with pytest.raises(RepositoryError, match=r"http://127\.0\.0\.1:1/org/example/\S+ cannot be read: .*refused"):
        Repository("http://127.0.0.1:1").download([JAR], tmp_path)


def mirror(mirrored: str, url: str) -> str:
    return f"<mirror><mirrorOf>{mirrored}</mirrorOf><url>{url}</url></mirror>"


@pytest.mark.parametrize("namespace", ["", 'xmlns="http://maven.apache.org/SETTINGS/1.2.0"'])
@pytest.mark.parametrize(
    ("mirrors", "url"),
    [
        ("", None),
        (mirror("*", " http://m/a "), "http://m/a"),
        (mirror("other", "http://m/a") + mirror("other, central", "http://m/b"), "http://m/b"),
        (mirror("*,!central", "http://m/a"), None),
    ],
)
def test_the_mirror_of_mavens_settings_is_used(tmp_path: Path, mirrors: str, url: str | None, namespace: str) -> None:
    settings = f"<settings {namespace}><mirrors>{mirrors}</mirrors></settings>"
    (tmp_path / "settings.xml").write_text(settings, encoding="utf-8")
    assert mirror_of_central(tmp_path / "settings.xml") == url


def test_settings_need_not_exist_but_must_be_xml(tmp_path: Path) -> None:
    assert mirror_of_central(tmp_path / "settings.xml") is None
    (tmp_path / "settings.xml").write_text("<settings>", encoding="utf-8")
    with pytest.raises(RepositoryError, match=r"settings\.xml is no XML"):
        mirror_of_central(tmp_path / "settings.xml")
