"""Every Python block of these pages runs as printed and leaves no task; the pages name what there is."""

import asyncio
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest

import recipes
import zkwire
from zkwire.testing import Server

ROOT = Path(__file__).resolve().parents[2]
PAGES = {
    name: (ROOT / "docs" / name).read_text(encoding="utf-8")
    for name in ("client.md", "recipes.md", "other-clients.md", "production.md")
}
BLOCKS = [
    (f"{name}, {heading}", number, code)
    for name, page in PAGES.items()
    for heading, section in re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", page, re.DOTALL | re.MULTILINE)
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", section, re.DOTALL))
    if not re.search("2181|basicConfig", code)  # scripts of their own: tests/docs/test_production_page.py
]


@pytest.mark.limit(30)
@pytest.mark.parametrize(("heading", "number", "code"), BLOCKS, ids=[f"{name}-{number}" for name, number, _ in BLOCKS])
async def test_an_example_runs(heading: str, number: int, code: str) -> None:
    names: dict[str, Any] = {"asyncio": asyncio, "zkwire": zkwire}
    names |= {name: getattr(recipes, name) for name in recipes.__all__}
    source = f"async def example(zk):\n{textwrap.indent(code, '    ')}"
    exec(compile(source, f"docs/{heading}, block {number + 1}", "exec"), names)
    async with Server() as server, zkwire.connect(server.hosts) as zk:
        await names["example"](zk)


# For authors of recipes.
INNER = """certain_for certain_until certify discard machine_suspended need_certainty release_certainty pipeline
    guaranteed_delete unique_id"""
# Appear within the names of other verbs.
OBVIOUS = "chroot close delete exists get get_children last_zxid session_password"


def test_every_recipe_is_documented() -> None:
    missing = [name for name in recipes.__all__ if not re.search(rf"\b{name}\b", PAGES["recipes.md"])]
    assert missing == []


def test_every_verb_of_the_client_is_documented() -> None:
    verbs = [name for name in dir(zkwire.Client) if not name.startswith("_")]
    missing = [name for name in verbs if name not in f"{INNER} {OBVIOUS}".split() and name not in PAGES["client.md"]]
    assert missing == []


def test_what_the_page_for_newcomers_names_exists() -> None:
    page = PAGES["other-clients.md"].partition("## Sharing a path")[0]
    ours = set(zkwire.__all__) | set(recipes.__all__)
    right = [cell for line in page.splitlines() if line.startswith("| ") for cell in [line.split(" | ")[-1]]]
    called = {name for cell in right for name in re.findall(r"\b([A-Z]\w+)\(", cell)}
    assert called - ours == set()
    verbs = {name for cell in right for name in re.findall(r"\bzk\.(\w+)\(", cell)}
    assert {name for name in verbs if not hasattr(zkwire.Client, name)} == set()
