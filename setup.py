"""What pyproject.toml cannot say: the README of an index page, whose links to files of the repository are absolute."""

import re
import tomllib
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).resolve().parent
RELATIVE = r"(!?)\[([^\]]*)\]\((?!https?://|#)([^)]*)\)"


def on_index(readme: str, source: str) -> str:
    """Return the README with its relative links below `source`; without it, their text alone and no pictures."""

    def link(found: re.Match[str]) -> str:
        picture, text, path = found.groups()
        if not source:
            return "" if picture else text
        return f"{picture}[{text}]({source}/{'raw' if picture else 'blob'}/HEAD/{path})"

    return re.sub(RELATIVE, link, readme)


urls = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"].get("urls", {})
setup(
    long_description=on_index((ROOT / "README.md").read_text(encoding="utf-8"), urls.get("Source", "")),
    long_description_content_type="text/markdown",
)
