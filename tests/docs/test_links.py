"""Every relative link on a page leads to a file that exists and, where it names a heading, to a heading there."""

from __future__ import annotations

import pkgutil
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), ROOT / "tests" / "differential" / "README.md"])


def _text(page: Path) -> str:
    """Return a page without its code blocks."""
    return re.sub(r"^ *```.*?^ *```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def _anchors(page: Path) -> set[str]:
    """Return the anchors of a page: those that it names, and those of headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", _text(page), re.MULTILINE)
    named = re.findall(r'<a id="([\w-]+)">', _text(page))
    return {*named} | {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_relative_links_lead_somewhere(page: Path) -> None:
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", _text(page)):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists() or (anchor and anchor not in _anchors(target)):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_lines_can_be_read_without_scrolling(page: Path) -> None:
    """Tables and lines that hold a link may be longer."""
    lines = page.read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if len(line) > 120 and not line.startswith("|") and "](" not in line] == []


# The changelog names what there was, too.
@pytest.mark.parametrize(
    "page", sorted({*PAGES} - {ROOT / "CHANGELOG.md"}), ids=lambda page: str(page.relative_to(ROOT))
)
def test_files_and_names_that_a_page_mentions_exist(page: Path) -> None:
    """A file is named from the top, or below the folder that the page is about; a name as a user imports it."""
    places = [ROOT, *(ROOT / folder for folder in ("zkwire", "tests", "tests/simulation"))]
    files = re.findall(r"`((?:[\w.-]+/)+[\w-]+\.(?:py|md|toml))`", _text(page))
    missing = [file for file in files if not any((place / file).exists() for place in places)]
    for name in re.findall(r"`((?:zkwire|recipes)(?:\.\w+)+)", _text(page)):
        try:
            pkgutil.resolve_name(name)
        except (AttributeError, ImportError):
            missing.append(name)
    assert missing == []
