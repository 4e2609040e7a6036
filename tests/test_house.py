"""The rules of the house: imports go down the ladder, the public names, the size of files, one clock, one die."""

import ast
import importlib
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

import recipes
import zkwire

ROOT = Path(__file__).resolve().parent.parent

# DESIGN 2.  A module may import its own rung and lower ones; a new module is given its rung here.
RUNGS = {
    "zkwire.errors": 0,
    "zkwire.paths": 0,
    "zkwire.jute": 1,
    "zkwire.records": 2,
    "zkwire.requests": 2,
    "zkwire.multi": 2,
    "zkwire.frames": 3,
    "zkwire.timing": 3,
    "zkwire.watches": 3,
    "zkwire.connection": 3,
    "zkwire.transport": 4,
    "zkwire.hosts": 4,
    "zkwire.janitor": 4,
    "zkwire.sasl": 4,
    "zkwire.credentials": 4,
    "zkwire.read_only": 4,
    "zkwire.observer": 4,
    "zkwire.following": 5,
    "zkwire.doubts": 4,
    "zkwire.exchange": 4,
    "zkwire.session": 4,
    "zkwire.words": 4,
    "zkwire.transaction": 5,
    "zkwire.streams": 5,
    "zkwire.arguments": 3,
    "zkwire.configuration": 3,
    "zkwire.states": 3,
    "zkwire.operations": 5,
    "zkwire.requester": 5,
    "zkwire.tree_removal": 5,
    "zkwire.administration": 5,
    "zkwire.events": 5,
    "zkwire.followers": 5,
    "zkwire.connecting": 5,
    "zkwire.client": 5,
    "zkwire": 6,
    "zkwire.cli": 7,
    "zkwire.__main__": 7,
}
TESTING = "zkwire.testing"
FIXTURES = "zkwire.testing.fixtures"  # for pytest, and on top of the client: nothing else may import it
HIGHEST_PURE_RUNG = 3

# What a core that is told the time and given the bytes has no use for.
OTHER_CLOCKS_AND_DICE = {"time", "datetime", "secrets", "uuid"}
IMPURE = OTHER_CLOCKS_AND_DICE | {"asyncio", "socket", "random", "ssl", "select", "selectors", "threading"}

ZKWIRE_NAMES = [
    "ACL", "CREATOR_ALL_ACL", "OPEN_ACL", "READ_ONLY_ACL", "Perms", "Stat", "Node", "Client", "Connecting",
    "connect", "SessionState", "StateStream", "Transaction", "Watch", "WatchEvent", "WatchEventType", "WatchSet",
    "EventStream", "Resync", "DataStream", "ChildrenStream", "Following",
    "Create", "Removal", "GetData", "GetChildren", "Sync", "ancestors", "sequence", "sequence_distance",
    "validate_path", "ZooKeeperError", "ServerError", "TransactionError", "ConnectionLostError", "ProtocolError",
    "SessionError", "SessionExpiredError", "SessionClosedError", "AuthFailedError", "BadArgumentsError",
    "BadVersionError", "DataInconsistencyError", "EphemeralOnLocalSessionError", "InvalidACLError",
    "MarshallingError", "NewConfigNoQuorumError", "NoAuthError", "NoChildrenForEphemeralsError", "NoNodeError",
    "NoWatcherError", "NodeExistsError", "NotEmptyError", "NotReadOnlyError", "OperationTimeoutError",
    "QuotaExceededError", "ReconfigDisabledError", "ReconfigInProgressError", "RequestTimeoutError",
    "AuthenticationRequiredError", "ClientInfo", "Configuration", "digest_acl",
    "RuntimeInconsistencyError", "SessionMovedError", "SystemServerError", "ThrottledError", "UnimplementedError",
    "DigestMD5", "Observer", "SaslMechanism",
    "four_letter_word",
]
RECIPES_NAMES = [
    "Barrier",
    "Cache",
    "CacheChange",
    "ChangeStream",
    "Counter",
    "DoubleBarrier",
    "Election",
    "Group",
    "Hold",
    "Item",
    "LeaderStream",
    "Lease",
    "Lock",
    "LockLostError",
    "LockTakenError",
    "Member",
    "MultiLease",
    "MultiLock",
    "Partitioner",
    "PermitsError",
    "PersistentEphemeral",
    "Queue",
    "ReadWriteLock",
    "ReentrantLock",
    "Semaphore",
    "SharedValue",
    "Term",
    "Terms",
    "TimedLease",
    "TimedLock",
    "TryLock",
    "WriteLease",
]


def _name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


SOURCES = {_name(path): path for folder in ("zkwire", "recipes") for path in sorted((ROOT / folder).rglob("*.py"))}
TREES = {name: ast.parse(path.read_text(encoding="utf-8"), str(path)) for name, path in SOURCES.items()}
OURS = sorted(name for name in SOURCES if not name.startswith(TESTING))
CORE = sorted(name for name in OURS if name.startswith("zkwire") and RUNGS.get(name, 0) <= HIGHEST_PURE_RUNG)


def _imports(module: str, tree: ast.Module) -> Iterator[str]:
    """Each module that `tree` imports, anywhere in it; `from package import module` names the module."""
    package = module if SOURCES.get(module, Path()).name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parent = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parent, *([base] if base else [])])
            for alias in node.names:
                yield f"{base}.{alias.name}" if f"{base}.{alias.name}" in SOURCES else base


def _climbs(module: str, imported: str) -> bool:
    if module == imported:
        return False
    if module.startswith("recipes"):
        return imported.startswith("zkwire.")
    if imported.startswith("recipes"):
        return True
    if FIXTURES in (module, imported):
        return imported == FIXTURES
    if module.startswith(TESTING):
        return not imported.startswith(TESTING) and RUNGS[imported] > HIGHEST_PURE_RUNG
    return imported.startswith(TESTING) or RUNGS[imported] > RUNGS[module]


def _ours(module: str) -> list[str]:
    return [name for name in _imports(module, TREES[module]) if name.partition(".")[0] in ("zkwire", "recipes")]


def test_every_module_has_its_rung() -> None:
    without = {name for name in SOURCES if name.startswith("zkwire") and not name.startswith(TESTING)} - set(RUNGS)
    assert not without, f"give them a rung in DESIGN 2 and in this test: {sorted(without)}"


@pytest.mark.parametrize("module", SOURCES)
def test_imports_go_down_the_ladder(module: str) -> None:
    assert [name for name in _ours(module) if _climbs(module, name)] == []


@pytest.mark.parametrize(
    ("module", "source", "climbs"),
    [
        ("zkwire.errors", "import zkwire.paths", False),
        ("zkwire.paths", "from zkwire.jute import record", True),
        ("zkwire.frames", "from zkwire import transport", True),
        ("zkwire.frames", "from . import session", True),
        ("zkwire.frames", "from .jute import record", False),
        ("zkwire.session", "from zkwire.client import Client", True),
        ("zkwire.session", "def f():\n    from zkwire.client import Client", True),
        ("zkwire.client", "import zkwire", True),
        ("zkwire.client", "from zkwire import hosts, paths", False),
        ("zkwire.client", "from recipes import Lock", True),
        ("zkwire.session", "import zkwire.testing", True),
        ("zkwire.testing", "from zkwire.connection import Connection", False),
        ("zkwire.testing", "from zkwire.session import Session", True),
        ("zkwire.testing", "import zkwire", True),
        ("zkwire.testing", "from zkwire.testing.fixtures import zk", True),
        ("zkwire.testing.fixtures", "import zkwire", False),
        ("zkwire.testing.fixtures", "from zkwire.testing.server import Server", False),
        ("zkwire.session", "import zkwire.testing.fixtures", True),
        ("recipes.lock", "from zkwire import Client", False),
        ("recipes.lock", "from zkwire.client import Client", True),
        ("recipes.lock", "from zkwire import client", True),
        ("recipes.lock", "from recipes.line import Line", False),
    ],
)
def test_this_test_sees_who_climbs(module: str, source: str, climbs: bool) -> None:
    found = list(_imports(module, ast.parse(source)))
    assert found
    assert any(_climbs(module, name) for name in found) is climbs


def test_no_module_imports_itself_round_a_corner() -> None:
    done: set[str] = set()

    def visit(module: str, way: tuple[str, ...]) -> None:
        assert module not in way, f"a circle: {' -> '.join((*way, module))}"
        if module not in done:
            for name in _ours(module):
                if name in TREES:
                    visit(name, (*way, module))
            done.add(module)

    for module in TREES:
        visit(module, ())
    assert done == set(TREES)


@pytest.mark.parametrize("module", SOURCES)
def test_nothing_outside_the_standard_library_is_imported(module: str) -> None:
    tops = {name.partition(".")[0] for name in _imports(module, TREES[module])}
    assert tops <= sys.stdlib_module_names | {"zkwire", "recipes"} | ({"pytest"} if module == FIXTURES else set())


def test_the_errors_import_nothing() -> None:
    assert set(_imports("zkwire.errors", TREES["zkwire.errors"])) == {"__future__"}


@pytest.mark.parametrize("module", CORE)
def test_the_core_knows_no_socket_no_clock_and_no_loop(module: str) -> None:
    tops = {name.partition(".")[0] for name in _imports(module, TREES[module])}
    assert not tops & IMPURE


def test_the_core_is_the_ten_modules_of_the_lower_rungs() -> None:
    core = {"errors", "paths", "jute", "records", "requests", "multi", "frames", "timing", "watches", "connection"}
    assert {name.removeprefix("zkwire.") for name in CORE} >= core


# -- public names -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("package", "names"), [(zkwire, ZKWIRE_NAMES), (recipes, RECIPES_NAMES)], ids=lambda v: "")
def test_the_public_names_are_these_and_no_others(package: types.ModuleType, names: list[str]) -> None:
    assert sorted(package.__all__) == sorted(names)
    assert len(set(names)) == len(names)
    there = {
        name
        for name, value in vars(package).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }
    assert there == set(names)


@pytest.mark.parametrize("module", [name for name in SOURCES if name.startswith("recipes")])
def test_recipes_use_nothing_but_zkwires_public_names(module: str) -> None:
    used = set()
    for node in ast.walk(TREES[module]):
        if isinstance(node, ast.ImportFrom) and node.module == "zkwire":
            used |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "zkwire":
            used.add(node.attr)
        elif isinstance(node, ast.Import):
            assert not [alias for alias in node.names if alias.name == "zkwire" and alias.asname], "call it zkwire"
    assert used <= set(zkwire.__all__)


@pytest.mark.parametrize("module", [name for name in SOURCES if name.startswith("recipes")])
def test_recipes_reach_into_nobodys_private_parts(module: str) -> None:
    reached = [
        f"{ast.unparse(node)}, line {node.lineno}"
        for node in ast.walk(TREES[module])
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.startswith("__")
        and not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"))
    ]
    assert reached == []


# -- size ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", SOURCES)
def test_no_file_is_longer_than_500_lines(module: str) -> None:
    assert len(SOURCES[module].read_text(encoding="utf-8").splitlines()) <= 500


@pytest.mark.parametrize("module", [name for name in SOURCES if not name.endswith("__main__")])
def test_a_module_says_first_what_it_is(module: str) -> None:
    assert ast.get_docstring(TREES[module])


# -- one clock, one die -------------------------------------------------------------------------------


def _rolls_dice(tree: ast.Module) -> list[str]:
    """Where `tree` uses the module random for more than the name of its class."""
    allowed: set[ast.AST] = set()
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == "connect":
            allowed |= set(ast.walk(node))
        elif isinstance(node, ast.ImportFrom) and node.module == "random":
            found.append(f"line {node.lineno}")
        elif isinstance(node, ast.Import):
            found += [f"line {node.lineno}" for alias in node.names if alias.name == "random" and alias.asname]
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if (node.value.id == "random" and node.attr != "Random") or (node.value.id, node.attr) == ("os", "urandom"):
                found.append(f"line {node.lineno}")
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "random.Random" and node not in allowed:
            found.append(f"line {node.lineno}")
    return found


@pytest.mark.parametrize("module", OURS)
def test_time_comes_from_the_loop_and_nowhere_else(module: str) -> None:
    """DESIGN 8: so that a simulation can give it."""
    tops = {name.partition(".")[0] for name in _imports(module, TREES[module])}
    assert not tops & OTHER_CLOCKS_AND_DICE


@pytest.mark.parametrize("module", OURS)
def test_randomness_comes_from_the_generator_made_in_connect(module: str) -> None:
    """DESIGN 8: so that a simulation can be repeated from its seed."""
    assert _rolls_dice(TREES[module]) == []


@pytest.mark.parametrize(
    ("source", "rolls"),
    [
        ("import random\ndef connect():\n    return random.Random()", False),
        ("import random\ndef other():\n    return random.Random()", True),
        ("import random\ndef f(rng: random.Random):\n    return rng.random()", False),
        ("import random\ndef connect():\n    return random.random()", True),
        ("import random\nrandom.shuffle([])", True),
        ("import random as r", True),
        ("from random import shuffle", True),
        ("import os\nos.urandom(16)", True),
    ],
)
def test_this_test_sees_who_rolls_dice(source: str, rolls: bool) -> None:
    assert bool(_rolls_dice(ast.parse(source))) is rolls


def test_the_generator_is_made_in_exactly_one_place() -> None:
    made = [
        module
        for module in OURS
        for node in ast.walk(TREES[module])
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "random.Random"
    ]
    assert made == ["zkwire.connecting"]


@pytest.mark.parametrize("module", [name for name in OURS if name.rpartition(".")[2] != "__main__"])
def test_a_module_can_be_imported_and_knows_its_name(module: str) -> None:
    assert importlib.import_module(module).__name__ == module
