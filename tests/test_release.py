"""The release check finds what is wrong with a wheel or an sdist."""

import io
import re
import runpy
import sys
import tarfile
import types
import zipfile
from pathlib import Path

import pytest

from tests import release

METADATA = """Requires-Dist: kazoo
Requires-Dist: pytest; extra == 'dev'

[all](docs/index.md) [there](https://x/) [here](#top)
"""


def test_a_wheel_with_too_much_or_too_little_is_refused(tmp_path: Path) -> None:
    wheel = tmp_path / "x.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("zkwire/__init__.py", "")
        archive.writestr("zkwire/py.typed", "")
        archive.writestr("tests/test_x.py", "")
        archive.writestr("zkwire/deleted.py", "")
        archive.writestr("x.data/data/share/man/a.1", "")
        archive.writestr("x.dist-info/METADATA", METADATA)
    tracked = {"zkwire/__init__.py", "zkwire/py.typed", "tests/test_x.py", "share/man/a.1", "share/man/b.1"}
    assert release.wrong_in_wheel(wheel, tracked) == [
        "the wheel has zkwire/deleted.py",
        "the wheel has tests/test_x.py",
        "the wheel lacks recipes/py.typed",
        "the wheel lacks share/man/b.1",
        "the wheel requires kazoo",
        "the page of the index has the link docs/index.md, which leads nowhere",
    ]


def test_an_sdist_that_lacks_a_tracked_file_is_refused(tmp_path: Path) -> None:
    sdist = tmp_path / "x.tar.gz"
    with tarfile.open(sdist, "w:gz") as archive:
        archive.addfile(tarfile.TarInfo("x-1/README.md"), io.BytesIO())
    assert release.wrong_in_sdist(sdist, {"README.md", "docs/client.md"}) == ["the sdist lacks docs/client.md"]


def test_two_archives_of_the_same_files_become_the_same_bytes(tmp_path: Path) -> None:
    """Whoever builds a version finds the digests of the files that are on the index."""
    packed = []
    for number, names in enumerate((["x/a", "x/b.sh"], ["x/b.sh", "x/a"])):
        path = tmp_path / f"{number}.tar.gz"
        with tarfile.open(path, "w:gz") as archive:
            for name in names:
                member = tarfile.TarInfo(name)
                member.size, member.mtime, member.uid, member.uname = 3, 1000 + number, number, f"user{number}"
                member.mode = (0o700 if name.endswith(".sh") else 0o600) | number * 0o44
                archive.addfile(member, io.BytesIO(name[-3:].encode()))
        packed.append(release.repacked(path, 1_800_000_000))
    assert packed[0] == packed[1]
    with tarfile.open(fileobj=io.BytesIO(packed[0])) as archive:
        found = [(member.name, member.mode, member.mtime, member.uid) for member in archive]
    assert found == [("x/a", 0o644, 1_800_000_000, 0), ("x/b.sh", 0o755, 1_800_000_000, 0)]


def test_the_page_of_the_index_has_no_link_that_leads_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, str] = {}
    monkeypatch.setitem(sys.modules, "setuptools", types.SimpleNamespace(setup=given.update))
    on_index = runpy.run_path(str(release.ROOT / "setup.py"))["on_index"]
    text = "![p](docs/p.svg)[a](docs/a.md#b) [c](https://x/) [d](#e)"
    assert on_index(text, "") == "a [c](https://x/) [d](#e)"
    known = "![p](https://h/raw/HEAD/docs/p.svg)[a](https://h/blob/HEAD/docs/a.md#b) [c](https://x/) [d](#e)"
    assert on_index(text, "https://h") == known
    assert "# zkwire" in given["long_description"]
    assert re.findall(r"\]\((?!https?://|#)", given["long_description"]) == []
