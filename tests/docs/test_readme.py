"""The README's first screen says what a newcomer needs, and the Chinese page says the same."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CHINESE = (ROOT / "README.zh-CN.md").read_text(encoding="utf-8")


def test_the_first_example_is_short() -> None:
    example = README.partition("```python\n")[2].partition("```")[0]
    assert len([line for line in example.splitlines() if line.strip()]) <= 15


def test_the_first_screen_names_test_bench_and_what_is_guaranteed() -> None:
    screen = "\n".join(README.splitlines()[:50])
    for wanted in ("make test", "make bench", "When a lock is lost", "LockLostError", "fencing token"):
        assert wanted in screen


def _code(block: str) -> str:
    """Return a Python block without its comments and the texts that it prints, a shell block without its comments."""
    code = re.sub(r" *#.*$", "", block, flags=re.MULTILINE)
    return re.sub(r'print\(".*?"', "print(", code)


# What is in no language: links, code in the text, numbers; and by blocks and tables.
@pytest.mark.parametrize(
    ("what", "find"),
    [
        ("blocks", lambda section: [_code(block) for block in re.findall(r"```\w+\n.*?```", section, re.DOTALL)]),
        ("links", lambda section: {*re.findall(r"\]\((.*?)\)", section)} - {"README.md", "README.zh-CN.md"}),
        ("names", lambda section: {*re.findall(r"(?<!`)`([^`\n]+)`", section)}),
        ("numbers", lambda section: {*re.findall(r"\d(?:[\d.,]*\d)?", section)}),
        ("rows", lambda section: len(re.findall(r"^\|", section, re.MULTILINE))),
        ("points", lambda section: len(re.findall(r"^- ", section, re.MULTILINE))),
    ],
)
def test_the_chinese_page_says_the_same(what: str, find: Callable[[str], object]) -> None:
    chinese, english = ([find(section) for section in page.split("\n## ")] for page in (CHINESE, README))
    assert chinese == english, what
