"""The site has every page and an entry for every public name; `make docs` builds it."""

import importlib
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
INDEX = (DOCS / "index.md").read_text(encoding="utf-8")
ENTRIES = [
    f"{module}.{name}"
    for page in sorted((DOCS / "api").glob("*.rst"))
    for module in re.findall(r"currentmodule:: ([\w.]+)", page.read_text(encoding="utf-8"))
    for name in re.findall(r"auto(?:class|function|data):: (\w+)", page.read_text(encoding="utf-8"))
]


@pytest.mark.parametrize("package", ["zkwire", "recipes", "zkwire.testing"])
def test_every_public_name_has_one_entry(package: str) -> None:
    entries = sorted(entry for entry in ENTRIES if entry.rpartition(".")[0] == package)
    assert entries == sorted(f"{package}.{name}" for name in importlib.import_module(package).__all__)


def test_the_index_links_every_page_and_lists_it_for_the_site() -> None:
    pages = {page.stem for page in DOCS.glob("*.md")} - {"index"}
    # docs/conf.py gives them the text of CHANGELOG.md and the like.
    outside = {"changelog", "contributing", "reporting"}
    assert {page for page in pages - outside if f"]({page}.md)" not in INDEX} == set()
    pages |= {f"api/{page.stem}" for page in (DOCS / "api").glob("*.rst")}
    listed = re.findall(
        r"^(?:.*<)?([\w/-]+)>?$", "".join(re.findall(r"```{toctree}(.*?)```", INDEX, re.DOTALL)), re.MULTILINE
    )
    assert sorted(listed) == sorted(pages)
