"""Downloads jars of a Maven repository, and refuses each that does not have the digest that is expected.

This module knows the mirror that the settings of Maven name. It must not know which jars a server needs.
"""

import hashlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from typing import Final
from urllib.error import HTTPError
from urllib.request import urlopen
from xml.etree import ElementTree

TIME_LIMIT: Final = 60.0
SIDE_BY_SIDE: Final = 8

_MIRRORED: Final = {"*", "external:*", "central"}


class RepositoryError(Exception):
    """A file could not be downloaded, or its digest is wrong; the message names its address."""


def download(repository: str, digests: Mapping[str, str], into: Path) -> None:
    """Write files of a repository into a folder that exists, several at a time.

    Args:
        repository: Its http or https address.
        digests: The path of each file below that address, and its SHA-256 in hexadecimal.
        into: The folder; a file gets the last name of its path.

    Raises:
        RepositoryError: if a file is missing or does not have its digest.
    """

    def one(path: str) -> None:
        url = f"{repository.rstrip('/')}/{path}"
        try:
            with urlopen(url, timeout=TIME_LIMIT) as reply:
                content: bytes = reply.read()
        except HTTPError as error:
            error.close()
            raise RepositoryError(f"{url} is not there: {error.code} {error.reason}") from error
        except (OSError, HTTPException) as error:
            raise RepositoryError(f"{url} cannot be read: {error}") from error
        if (found := hashlib.sha256(content).hexdigest()) != digests[path]:
            raise RepositoryError(f"{url} has the SHA-256 {found}, not {digests[path]}")
        (into / PurePosixPath(path).name).write_bytes(content)

    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        list(pool.map(one, digests))  # raises the first error


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
