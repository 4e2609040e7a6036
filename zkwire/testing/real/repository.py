"""Downloads files of a repository of jars, and refuses each with a missing or wrong checksum.

This module knows the layout of a Maven repository, and the mirror that the settings of Maven name. It must not know
which jars a server needs.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Final, TypeVar
from urllib.error import HTTPError
from urllib.request import urlopen
from xml.etree import ElementTree

TIME_LIMIT: Final = 60.0
SIDE_BY_SIDE: Final = 8

_MIRRORED: Final = {"*", "external:*", "central"}

Item = TypeVar("Item")


class RepositoryError(Exception):
    """A file could not be downloaded, or its checksum is missing or wrong; the message names its address."""


@dataclass(frozen=True, slots=True)
class Artifact:
    """One file of a release."""

    group: str
    name: str
    version: str
    classifier: str = ""

    @property
    def file(self) -> str:
        """The name of the jar."""
        return f"{'-'.join(filter(None, (self.name, self.version, self.classifier)))}.jar"

    @property
    def path(self) -> str:
        """The path of the jar in each repository."""
        return f"{self.group.replace('.', '/')}/{self.name}/{self.version}/{self.file}"


class Repository:
    """A repository at an http or https address.

    Raises:
        RepositoryError: from every method, if a file is missing or its checksum is missing or wrong.
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")

    def versions(self, group: str, name: str) -> list[str]:
        """Return the versions that the repository lists; a listed version may be incomplete."""
        path = f"{group.replace('.', '/')}/{name}/maven-metadata.xml"
        try:
            listed = ElementTree.fromstring(self._verified(path))
        except ElementTree.ParseError as error:
            raise RepositoryError(f"{self.url}/{path} is not XML: {error}") from error
        return [element.text or "" for element in listed.iter("version")]

    def download(self, artifacts: Sequence[Artifact], into: Path) -> None:
        """Write the jars into a folder that exists, several at a time."""

        def one(artifact: Artifact) -> None:
            (into / artifact.file).write_bytes(self._verified(artifact.path))

        _side_by_side(one, artifacts)

    def verify(self, copy: Path, files: Iterable[Path]) -> None:
        """Compare files that another program has downloaded into `copy`, laid out as here, with their checksums."""
        _side_by_side(lambda file: self._verify(file.relative_to(copy).as_posix(), file.read_bytes()), files)

    def _verified(self, path: str) -> bytes:
        content = self._read(path)
        self._verify(path, content)
        return content

    def _verify(self, path: str, content: bytes) -> None:
        # The one kind of checksum that a repository has for every file; TLS protects the way from there.
        stated = re.match(rb"\s*([0-9a-fA-F]{40})\b", self._read(f"{path}.sha1"))
        if stated is None:
            raise RepositoryError(f"{self.url}/{path}.sha1 is not a checksum")
        if hashlib.sha1(content, usedforsecurity=False).hexdigest() != stated[1].decode().lower():
            raise RepositoryError(f"{self.url}/{path} does not have the checksum that is stated in {path}.sha1")

    def _read(self, path: str) -> bytes:
        url = f"{self.url}/{path}"
        try:
            with urlopen(url, timeout=TIME_LIMIT) as reply:
                content: bytes = reply.read()
        except HTTPError as error:
            error.close()
            raise RepositoryError(f"{url} is not there: {error.code} {error.reason}") from error
        except (OSError, HTTPException) as error:
            raise RepositoryError(f"{url} cannot be read: {error}") from error
        return content


def mirror_of_central(settings: Path) -> str | None:
    """Return the address of the mirror that Maven's settings name for its central repository, None if there is none.

    Args:
        settings: The path of a settings.xml, which need not exist.

    Raises:
        RepositoryError: if it is not XML.
    """
    if not settings.exists():
        return None
    try:
        root = ElementTree.parse(settings).getroot()
    except ElementTree.ParseError as error:
        raise RepositoryError(f"{settings} is not XML: {error}") from error
    for mirror in root.iterfind("{*}mirrors/{*}mirror"):
        mirrored = {name.strip() for name in mirror.findtext("{*}mirrorOf", "").split(",")}
        if mirrored & _MIRRORED and "!central" not in mirrored:
            return mirror.findtext("{*}url", "").strip() or None
    return None


def _side_by_side(action: Callable[[Item], None], items: Iterable[Item]) -> None:
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        list(pool.map(action, items))  # raises the first error
