"""Every Python block of the pages runs as printed and leaves no task; the pages name what there is."""

import asyncio
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest

import recipes
import zkwire
from tests.support.scripts import run_script
from zkwire.testing import Server, ServerProcess

ROOT = Path(__file__).resolve().parents[2]
PAGES = {
    path.name: path.read_text(encoding="utf-8") for path in (*ROOT.glob("*.md"), *sorted((ROOT / "docs").glob("*.md")))
}
# By page, heading and number. What docs/testing.md gives to pytest runs in tests/docs/test_testing_page.py.
BLOCKS = {
    f"{name}, {heading or 'its beginning'}, {number}": code
    for name, page in PAGES.items()
    for heading, section in re.findall(r"(?:^## (.*?)\n)?(.*?)(?=^## |\Z)", page, re.DOTALL | re.MULTILINE)
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", section, re.DOTALL), 1)
    if not re.search("def test_|^pytest_plugins", code)
}
# The blocks that are scripts: each line that they print matches one of these, and each of these matches a line.
SCRIPTS = {
    "README.md, its beginning, 1": [r"mine, with the fencing token \d+"],
    "README.zh-CN.md, its beginning, 1": [r".*fencing token .* \d+"],
    "production.md, Stopping, 1": ["ends"],
    "production.md, Logging, 1": [],
    "production.md, Metrics, 2": [
        "zookeeper_connected 0",
        'zookeeper_events_total{type="CREATED"} 1',
        'zookeeper_requests_total{operation="closeSession",outcome="ok"} 1',
        'zookeeper_requests_total{operation="create",outcome="ok"} 1',
        'zookeeper_requests_total{operation="exists",outcome="ok"} 1',
        'zookeeper_states_total{state="CONNECTED"} 1',
        r'zookeeper_\w+(\{[a-z]+="\w+"(,[a-z]+="\w+")*\})? \d+(\.\d+)?(e-\d+)?',
    ],
    "production.md, Blocking code, 1": ["/greeting", "the fencing token is a number: True"],
    "recipes.md, its beginning, 1": [],
    "testing.md, its beginning, 1": ["/greeting"],
}
# What a page leaves to its reader, before the block.
BEFORE = {
    "production.md, Stopping, 1": """
import os, zkwire

async def main():
    async with zkwire.connect("127.0.0.1:2181") as zk:
        asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGTERM)
        try:
            await asyncio.Event().wait()
        finally:
            print("ends")
"""
}


def _with_hosts(code: str, hosts: str) -> str:
    return re.sub(r"(?:(?:zk\d|127\.0\.0\.1):2181,?)+", hosts, code)


@pytest.mark.parametrize("block", [block for block in BLOCKS if block not in SCRIPTS])
async def test_an_example_runs(block: str) -> None:
    names: dict[str, Any] = {"asyncio": asyncio, "zkwire": zkwire}
    names |= {name: getattr(recipes, name) for name in recipes.__all__}
    async with Server() as server, zkwire.connect(server.hosts) as zk:
        for chroot in re.findall(r':2181(/\w+)"', BLOCKS[block]):
            await zk.create(chroot)
        source = f"async def example(zk):\n{textwrap.indent(_with_hosts(BLOCKS[block], server.hosts), '    ')}"
        exec(compile(source, f"block {block}", "exec"), names)
        async with asyncio.timeout(20):
            await names["example"](zk)


@pytest.mark.slow("starts Python for each")
@pytest.mark.parametrize("block", SCRIPTS)
def test_a_script_runs(block: str, tmp_path: Path) -> None:
    with ServerProcess() as server:
        printed = run_script(_with_hosts(BEFORE.get(block, "") + BLOCKS[block], server.hosts), tmp_path)
    lines, wanted = printed.splitlines(), SCRIPTS[block]
    assert [line for line in lines if not any(re.fullmatch(one, line) for one in wanted)] == []
    assert [one for one in wanted if not any(re.fullmatch(one, line) for line in lines)] == [], printed


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
