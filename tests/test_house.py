"""The rules of the house: imports go down the floors, public names, size of files, one clock, one source of chance."""

import ast
import importlib
import re
import sys
import types
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

import recipes
import zkwire
import zkwire.testing
from tests.support.code_lines import code_lines
from tests.support.files import project_files

ROOT = Path(__file__).resolve().parent.parent

# The floors, lowest first: the first entry that a module's name begins with is its floor.  A module may import its own
# floor and lower ones.  A new file needs no entry; a new folder does.
FLOORS = (
    ("zkwire.errors", "zkwire.paths"),
    ("zkwire.wire",),
    ("zkwire.session",),
    ("zkwire.client",),
    ("zkwire",),
    ("recipes.common",),
    ("recipes.line",),
    ("recipes",),
)
PURE = ("zkwire.errors", "zkwire.paths", "zkwire.wire")
# Stands beside session and client, on the pure floors: the in-memory server must not know the client.
TESTING = "zkwire.testing"
# The command zklock has its options and its output in common with the command zkwire.
LOCK_COMMAND = "recipes.command"
SHARED_BY_COMMANDS = ("zkwire.command.options", "zkwire.command.output")
FIXTURES = "zkwire.testing.fixtures"  # for pytest, and on top of the client: nothing else may import it

# The one other place that reads a clock: how long the machine was suspended, which no event loop tells.
SUSPENSION = "zkwire.session.keepalive"
# Processes of their own, and what they print: they have a clock in common with other processes, or with people.
COMMAND_CLOCKS = ("recipes.command.kernel", "recipes.command.show")

# Put times that a server has noted into words, and read no clock.
PRINT_TIMES = ("zkwire.command.output", "recipes.line.contenders", "recipes.queue.attempts")

# A core that is given the time and the bytes needs none of these.
OTHER_CLOCKS_AND_CHANCE = {"time", "datetime", "secrets", "uuid"}
IMPURE = OTHER_CLOCKS_AND_CHANCE | {"asyncio", "socket", "random", "ssl", "select", "selectors", "threading"}
PUBLIC = (zkwire, recipes, zkwire.testing)

# What objects of recipes call of each other, and users do not: it is not promised.
SHARED_WITHIN_RECIPES = re.compile(
    r"_(abandon|acquired_again|body_ended|cancel_body_soon|cancellations|deliver|end|enter_body|find_loss|give_back|go_on_under|guard"
    r"|interrupt|is_left_to_bodies|leave_body|leave_node|loss|release_at_once|ticket)"
)


def _name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


SOURCES = {_name(path): path for folder in ("zkwire", "recipes") for path in sorted((ROOT / folder).rglob("*.py"))}
TREES = {name: ast.parse(path.read_text(encoding="utf-8"), str(path)) for name, path in SOURCES.items()}
NODES = {name: list(ast.walk(tree)) for name, tree in TREES.items()}


def _is_in(module: str, places: tuple[str, ...]) -> bool:
    return any(module == place or module.startswith(f"{place}.") for place in places)


def _floor(module: str) -> int:
    """Return the number of the floor of `module`; a package itself is on the floor of what it exports."""
    return next(number for number, places in enumerate(FLOORS) if _is_in(module, places))


OURS = sorted(name for name in SOURCES if not name.startswith(TESTING))
CORE = sorted(name for name in OURS if _is_in(name, PURE))


def _imports(module: str, nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Each module that a tree imports, anywhere in it; `from package import module` names the module."""
    package = module if SOURCES.get(module, Path()).name == "__init__.py" else module.rpartition(".")[0]
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parent = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parent, *([base] if base else [])])
            for alias in node.names:
                yield f"{base}.{alias.name}" if f"{base}.{alias.name}" in SOURCES else base


def _tops(module: str) -> set[str]:
    return {name.partition(".")[0] for name in _imports(module, NODES[module])}


def _climbs(module: str, imported: str) -> bool:
    if module == imported:
        return False
    if module.startswith(LOCK_COMMAND) and imported in SHARED_BY_COMMANDS:
        return False
    if module.startswith("recipes") and imported.startswith("zkwire"):
        return imported != "zkwire"  # recipes use zkwire's public names only
    if FIXTURES in (module, imported):
        return imported == FIXTURES
    if module.startswith(TESTING):
        return not imported.startswith(TESTING) and not _is_in(imported, PURE)
    return imported.startswith(TESTING) or _floor(imported) > _floor(module)


def _ours(module: str) -> list[str]:
    return [name for name in _imports(module, NODES[module]) if name.partition(".")[0] in ("zkwire", "recipes")]


def test_imports_go_down_the_floors() -> None:
    assert [(module, name) for module in SOURCES for name in _ours(module) if _climbs(module, name)] == []


@pytest.mark.parametrize(
    ("module", "source", "climbs"),
    [
        ("zkwire.errors", "import zkwire.paths", False),
        ("zkwire.paths", "from zkwire.wire.jute import record", True),
        ("zkwire.wire.frames", "from zkwire.session import transport", True),
        ("zkwire.wire.frames", "from ..session import transport", True),
        ("zkwire.wire.frames", "from .jute import record", False),
        ("zkwire.session.session", "from zkwire.client.client import Client", True),
        ("zkwire.session.session", "def f():\n    from zkwire.client.client import Client", True),
        ("zkwire.client.client", "import zkwire", True),
        ("zkwire.client.client", "from zkwire.session import hosts", False),
        ("zkwire.testing", "from zkwire.wire.connection import Connection", False),
        ("zkwire.testing", "import zkwire", True),
        ("zkwire.testing", "from zkwire.testing.fixtures import zk", True),
        ("zkwire.testing.fixtures", "import zkwire", False),
        ("zkwire.session.session", "import zkwire.testing.fixtures", True),
        ("recipes.lock", "from zkwire import Client", False),
        ("recipes.lock", "from zkwire.client.client import Client", True),
        ("recipes.lock", "from recipes.line.line import Line", False),
        ("recipes.command.show", "from zkwire.command import output", False),
        ("recipes.command.show", "from zkwire.command import nodes", True),
        ("recipes.line.line", "from recipes.lock import Lock", True),
    ],
)
def test_this_test_sees_what_climbs(module: str, source: str, climbs: bool) -> None:
    found = list(_imports(module, ast.walk(ast.parse(source))))
    assert found
    assert any(_climbs(module, name) for name in found) is climbs


def test_no_module_imports_itself_in_a_circle() -> None:
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


def test_nothing_outside_the_standard_library_is_imported() -> None:
    known = sys.stdlib_module_names | {"zkwire", "recipes"}
    assert [(module, top) for module in SOURCES for top in _tops(module) - known] == [(FIXTURES, "pytest")]


def test_the_errors_import_nothing() -> None:
    assert set(_imports("zkwire.errors", NODES["zkwire.errors"])) == {"__future__"}


def test_the_core_knows_no_socket_no_clock_and_no_loop() -> None:
    assert [(module, top) for module in CORE for top in _tops(module) & IMPURE] == []


# -- public names -------------------------------------------------------------------------------------


@pytest.mark.parametrize("package", PUBLIC, ids=lambda package: package.__name__)
def test_a_package_gives_the_names_of_its_list_and_no_others(package: types.ModuleType) -> None:
    names = package.__all__
    assert len(set(names)) == len(names)
    there = {
        name
        for name in dir(package)
        if not name.startswith("_") and not isinstance(getattr(package, name), types.ModuleType)
    }
    assert there == set(names)


def _nodes_of_recipes() -> Iterator[tuple[str, ast.AST]]:
    return ((name, node) for name in SOURCES if name.startswith("recipes") for node in NODES[name])


def test_recipes_use_nothing_but_zkwires_public_names() -> None:
    used = set()
    for module, node in _nodes_of_recipes():
        if isinstance(node, ast.ImportFrom) and node.module == "zkwire":
            used |= {(module, alias.name) for alias in node.names}
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "zkwire":
            used.add((module, node.attr))
        elif isinstance(node, ast.Import):
            assert not [alias for alias in node.names if alias.name == "zkwire" and alias.asname], "call it zkwire"
    assert [(module, name) for module, name in used if name not in zkwire.__all__] == []


def test_recipes_use_no_private_attribute_of_another_object() -> None:
    reached = [
        f"{module}: {ast.unparse(node)}, line {node.lineno}"
        for module, node in _nodes_of_recipes()
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.startswith("__")
        and not SHARED_WITHIN_RECIPES.fullmatch(node.attr)
        and ast.unparse(node.value) not in ("self", "cls", "super()")
        and ast.unparse(node) not in ("os._exit", "self._rules._replace")  # public names, whatever they begin with
    ]
    assert reached == []


# -- size ---------------------------------------------------------------------------------------------


def test_no_file_is_longer_than_500_lines() -> None:
    assert [path for path in SOURCES.values() if len(path.read_text(encoding="utf-8").splitlines()) > 500] == []


def test_a_module_says_first_what_it_is() -> None:
    named = (name for name in SOURCES if not name.endswith("__main__"))
    assert [name for name in named if not ast.get_docstring(TREES[name])] == []


# -- mass and words -----------------------------------------------------------------------------------

# Lower these limits when the code has become smaller.
MOST_CODE = {("zkwire", "recipes"): 17_000, ("tests",): 45_000}  # lines without docstrings, comments and blank lines

# Words of our own, where the field has others; docs/architecture.md and CONTRIBUTING.md use the field's.
_OLD_NAMES = re.compile(
    r"Sight|sight|Standing|standing|Looks|SharedLooks|looks|shared_looks|Share|SharedList|shared_list|Strangers?|strangers?"
    r"|OwnData|own_data|Proofs|proofs|Places|Aside|aside|Keeper|keeper|Removal|Traces?|traces|Notices|notices|Entrance"
    r"|entrance|Farewell|farewell|Leaving|Proving|proving|Reach|grain|in_words|hides_arguments|stands"
)
_OLD_PHRASES = re.compile(
    r"\b(?:(?<!lag )(?<!lags )behind(?! a balancer)|ahead of"
    r"|anew|go(?:es|ing)? round|all the same|takes? note that|(?:is|are) no tickets?|strangers?"
    r"|sight|somebody|nobody|that of|in_words|hides_arguments)\b",
    re.IGNORECASE,
)
_DEFINES_A_TERM = ROOT / "docs" / "waiting-line.md"
_NAMES_OF_NODES = ("id", "name", "attr", "arg", "asname")


@pytest.mark.slow("parses every file twice")
@pytest.mark.parametrize("folders", MOST_CODE, ids="+".join)
def test_the_code_does_not_grow_beyond_its_limit(folders: tuple[str, ...]) -> None:
    assert sum(code_lines(ROOT / folder) for folder in folders) <= MOST_CODE[folders]


def test_a_users_type_checker_need_not_infer_the_type_of_an_attribute() -> None:
    """`pyright --verifytypes` counts as known what is annotated, or is once a literal or an argument."""
    classes = {node.name: node for tree in TREES.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}

    def declared(cls: ast.ClassDef) -> set[str]:
        parents = [re.split(r"[.\[]", ast.unparse(base).partition("[")[0])[-1] for base in cls.bases]
        own = {
            ast.unparse(node.target).removeprefix("self.") for node in ast.walk(cls) if isinstance(node, ast.AnnAssign)
        }
        own |= {node.name for node in cls.body if isinstance(node, ast.FunctionDef)}  # properties
        return own.union(*(declared(classes[parent]) for parent in parents if parent in classes))

    assert [
        f"{cls.name}.{target}"
        for cls in classes.values()
        for node in ast.walk(cls)
        if isinstance(node, ast.Assign) and not isinstance(node.value, ast.Constant | ast.Name)
        for target in re.findall(
            r"\bself\.([a-z]\w*)(?= *[,)=]|$)", ast.unparse(node).rpartition(ast.unparse(node.value))[0]
        )
        if not cls.name.startswith("_") and target not in declared(cls)
    ] == []


def test_few_modules_ask_whether_a_refusal_is_transient() -> None:
    asking = [
        module
        for module, nodes in NODES.items()
        if any(isinstance(node, ast.Attribute) and node.attr == "is_transient" for node in nodes)
    ]
    assert len(asking) <= 2, asking


def test_names_are_those_of_the_field() -> None:
    old = [
        f"{module}:{getattr(node, 'lineno', 0)}: {name}"
        for module, nodes in NODES.items()
        for node in nodes
        for name in (getattr(node, attribute, None) for attribute in _NAMES_OF_NODES)
        if isinstance(name, str) and _OLD_NAMES.fullmatch(name.lstrip("_"))
    ]
    assert old == []


def test_texts_have_no_phrases_of_our_own() -> None:
    pages = [path for path in (ROOT / "docs").rglob("*.md") if path != _DEFINES_A_TERM]
    old = [
        f"{path.relative_to(ROOT)}:{number}: {phrase}"
        for path in (*SOURCES.values(), *pages, ROOT / "README.md", ROOT / "CONTRIBUTING.md")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        for phrase in _OLD_PHRASES.findall(line)
    ]
    assert old == []


# -- one clock, one source of chance -------------------------------------------------------------------------------


def _uses_chance(nodes: list[ast.AST]) -> list[str]:
    """Where a tree uses the module random for more than the name of its class, or a generator that can be predicted."""
    allowed: set[ast.AST] = set()
    found = []
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == "connect":
            allowed |= set(ast.walk(node))
        elif isinstance(node, ast.ImportFrom) and node.module == "random":
            found.append(f"line {node.lineno}")
        elif isinstance(node, ast.Import):
            found += [f"line {node.lineno}" for alias in node.names if alias.name == "random" and alias.asname]
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            named = f"{node.value.id}.{node.attr}"
            may = named == "random.Random" or (named == "random.SystemRandom" and node in allowed)
            if (node.value.id == "random" and not may) or named == "os.urandom":
                found.append(f"line {node.lineno}")
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "random.Random":
            found.append(f"line {node.lineno}")
    return found


def test_time_comes_from_the_loop_and_nowhere_else() -> None:
    """So that a simulation can give the time."""
    known = {(module, "datetime") for module in PRINT_TIMES}
    for module in PRINT_TIMES:
        assert "now" not in {node.attr for node in NODES[module] if isinstance(node, ast.Attribute)}
    looked = [name for name in OURS if name not in (SUSPENSION, *COMMAND_CLOCKS)]
    assert {(module, top) for module in looked for top in _tops(module) & OTHER_CLOCKS_AND_CHANCE} <= known


def test_randomness_comes_from_the_generator_made_in_connect() -> None:
    """So that a simulation can be repeated from its seed."""
    assert [(module, found) for module in OURS if (found := _uses_chance(NODES[module]))] == []


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import random\ndef connect():\n    return random.SystemRandom()", False),
        ("import random\ndef other():\n    return random.SystemRandom()", True),
        ("import random\ndef connect():\n    return random.Random()", True),
        ("import random\ndef other():\n    return random.Random()", True),
        ("import random\ndef f(rng: random.Random):\n    return rng.random()", False),
        ("import random\ndef connect():\n    return random.random()", True),
        ("import random\nrandom.shuffle([])", True),
        ("import random as r", True),
        ("from random import shuffle", True),
        ("import os\nos.urandom(16)", True),
    ],
)
def test_this_test_sees_who_uses_chance(source: str, found: bool) -> None:
    assert bool(_uses_chance(list(ast.walk(ast.parse(source))))) is found


def test_the_generator_is_made_in_exactly_one_place() -> None:
    made = [module for module in OURS if "random.SystemRandom(" in SOURCES[module].read_text(encoding="utf-8")]
    assert made == ["zkwire.client.connect"]


def test_each_module_can_be_imported_and_knows_its_name() -> None:
    for module in OURS:
        if not module.endswith("__main__"):
            assert importlib.import_module(module).__name__ == module


# -- what the repository cites ------------------------------------------------------------------------

_ELSEWHERE = re.compile(r"\b(?:DES" r"IGN|PRO" r"TOCOL|PIT" r"FALLS|ST" r"YLE)(?:\.md)?(?: \d|\b)")


def test_nothing_cites_a_page_outside_of_the_repository() -> None:
    """The pages that the project was designed with are not in the repository: a reader could not follow."""
    cited = []
    for name in project_files():
        if not name.startswith("tests/captures/recorded"):
            lines = (ROOT / name).read_text(encoding="utf-8", errors="replace").splitlines()
            cited += [f"{name}:{number}: {line}" for number, line in enumerate(lines, 1) if _ELSEWHERE.search(line)]
    assert cited == []
