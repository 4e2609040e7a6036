"""The release check finds what is wrong with a wheel or an sdist."""

import io
import tarfile
import zipfile
from pathlib import Path

from tests import release


def test_a_wheel_with_too_much_or_too_little_is_refused(tmp_path: Path) -> None:
    wheel = tmp_path / "x.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("zkwire/__init__.py", "")
        archive.writestr("zkwire/py.typed", "")
        archive.writestr("tests/test_x.py", "")
        archive.writestr("zkwire/deleted.py", "")
        archive.writestr("x.data/data/share/man/a.1", "")
        archive.writestr("x.dist-info/METADATA", "Requires-Dist: kazoo\nRequires-Dist: pytest; extra == 'dev'\n")
    tracked = {"zkwire/__init__.py", "zkwire/py.typed", "tests/test_x.py", "share/man/a.1", "share/man/b.1"}
    assert release.wrong_in_wheel(wheel, tracked) == [
        "the wheel has zkwire/deleted.py",
        "the wheel has tests/test_x.py",
        "the wheel lacks recipes/py.typed",
        "the wheel lacks share/man/b.1",
        "the wheel requires kazoo",
    ]


def test_an_sdist_that_lacks_a_tracked_file_is_refused(tmp_path: Path) -> None:
    sdist = tmp_path / "x.tar.gz"
    with tarfile.open(sdist, "w:gz") as archive:
        archive.addfile(tarfile.TarInfo("x-1/README.md"), io.BytesIO())
    assert release.wrong_in_sdist(sdist, {"README.md", "docs/client.md"}) == ["the sdist lacks docs/client.md"]
