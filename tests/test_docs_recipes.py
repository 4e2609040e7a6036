"""Every Python block of docs/recipes.md runs as printed, each on a server of its own, and leaves no task behind."""

import asyncio
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest

import recipes
import zkwire
from zkwire.testing import Server

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
BLOCKS = [
    (heading, number, code)
    for heading, section in re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", section, re.DOTALL))
]


@pytest.mark.limit(30)
@pytest.mark.parametrize(("heading", "number", "code"), BLOCKS, ids=[f"{name}-{number}" for name, number, _ in BLOCKS])
async def test_an_example_runs(heading: str, number: int, code: str) -> None:
    names: dict[str, Any] = {"asyncio": asyncio, "zkwire": zkwire}
    names |= {name: getattr(recipes, name) for name in recipes.__all__}
    source = f"async def example(zk):\n{textwrap.indent(code, '    ')}"
    exec(compile(source, f"docs/recipes.md, {heading}, block {number + 1}", "exec"), names)
    async with Server() as server, zkwire.connect(server.hosts) as zk:
        await names["example"](zk)


def test_every_recipe_has_its_section() -> None:
    missing = [name for name in recipes.__all__ if not re.search(rf"\b{name}\b", PAGE)]
    assert missing == []
