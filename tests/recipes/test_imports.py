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
