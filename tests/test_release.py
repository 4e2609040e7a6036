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
        archive.writestr("x.dist-info/METADATA", "Requires-Dist: kazoo\nRequires-Dist: pytest; extra == 'dev'\n")
    assert release.wrong_in_wheel(wheel, {"zkwire/__init__.py", "zkwire/py.typed", "tests/test_x.py"}) == [
        "the wheel has zkwire/deleted.py",
        "the wheel has tests/test_x.py",
        "the wheel lacks recipes/py.typed",
        "the wheel requires kazoo",
    ]


def test_an_sdist_that_lacks_a_tracked_file_is_refused(tmp_path: Path) -> None:
    sdist = tmp_path / "x.tar.gz"
    with tarfile.open(sdist, "w:gz") as archive:
        archive.addfile(tarfile.TarInfo("x-1/README.md"), io.BytesIO())
    assert release.wrong_in_sdist(sdist, {"README.md", "docs/client.md"}) == ["the sdist lacks docs/client.md"]
