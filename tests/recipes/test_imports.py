"""What a program imports that only takes locks: every other module would be paid for at its start."""

import subprocess
import sys

import pytest

import recipes

_SCRIPT = """
import asyncio, sys, zkwire, recipes
assert set(dir(recipes)) > set(recipes.__all__)
print("before", *sys.modules)
recipes.Lock
print("after", *sys.modules)
from recipes import *
Queue, only_one
"""
_UNUSED = {"hashlib", "hmac", "datetime", "ipaddress", "urllib.parse", "argparse", "recipes.line.contenders"}


def test_a_program_imports_the_recipes_that_it_names() -> None:
    done = subprocess.run([sys.executable, "-c", _SCRIPT], stdout=subprocess.PIPE, text=True, check=True)
    before, after = (set(line.split()) for line in done.stdout.splitlines())
    assert {name for name in before if name.startswith("recipes")} == {"recipes"}
    assert "recipes.lock" in after
    top = {name for name in after if name.startswith("recipes.") and name.count(".") == 1}
    assert top == {"recipes.lock", "recipes.common", "recipes.line"}
    assert not after & _UNUSED
    assert not [name for name in after if name.startswith(("zkwire.testing", "zkwire.command", "zkwire.blocking"))]


def test_a_name_that_is_none_of_the_recipes_is_missed_at_once() -> None:
    with pytest.raises(AttributeError, match="'recipes' has no attribute 'Lok'"):
        getattr(recipes, "Lok")  # noqa: B009  # the type checker would see it


_CONTENDED = """
import asyncio, os, recipes, zkwire, zkwire.testing, zkwire.wire.jute

async def main(address):
    async with zkwire.connect(address) as zk, zkwire.connect(address) as other:
        make, zkwire.wire.jute._generate = zkwire.wire.jute._generate, lambda *_: os._exit(1)
        lock = recipes.Lock(zk, "/lock")
        lease = await lock.acquire()
        waits = asyncio.ensure_future(recipes.Lock(other, "/lock").acquire())
        while len(await zk.get_children("/lock")) < 2: pass
        await lease.release()
        await (await waits).release()
        zkwire.wire.jute._generate = make

with zkwire.testing.ServerProcess() as server:
    asyncio.run(main(server.hosts))
"""


def test_no_codec_is_made_while_others_wait_for_a_lock() -> None:
    subprocess.run([sys.executable, "-c", _CONTENDED], check=True)
