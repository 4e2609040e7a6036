"""The small changes of a sample: which there are, what they replace, and which tests guard a module."""

import ast
import functools

import pytest

from tests.mutants.changes import Change, changes
from tests.mutants.mutant import ROOT
from tests.mutants.sample import core_files, drawn, equivalents
from tests.mutants.trial import first_failed


@functools.cache
def _changes_of(file: str) -> tuple[str, list[Change]]:
    """Return the text of a file of the product, and all changes of it."""
    text = (ROOT / file).read_text(encoding="utf-8")
    return text, changes(file, text)


def _results(text: str) -> list[str]:
    return [change.applied(text) for change in changes("a.py", text)]


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("a = b < 3", "a = b <= 3"),
        ("a = b is None", "a = b is not None"),
        ("a = b in c", "a = b not in c"),
        ("a = b and c", "a = (b or c)"),
        ("a = b and c", "a = (c)"),
        ("a = 4", "a = 5"),
        ("a = 4", "a = 3"),
        ("a = 0.5", "a = 1.5"),
        ("a = True", "a = False"),
        ("f()", "pass"),
        ("async def f():\n    await g()", "async def f():\n    pass"),
        ("def f():\n    g()\n    h()", "def f():\n    return\n    h()"),
        ("def f(self):\n    self.a = 'ä'; self.b = g()", "def f(self):\n    self.a = 'ä'; pass"),
        ("if a: b()", "if (not (a)): b()"),
        ("if not a: b()", "if (a): b()"),
        ("while a < b:\n    break", "while a < b:\n    continue"),
        ("a = [b for b in c if d(b)]", "a = [b for b in c if (not (d(b)))]"),
        ("f(a, b, *c)", None),
        ("f(a, b, c=1)", "f(b, a, c=1)"),
        ("zip(a, b, strict=False)", "zip(a, b, strict=True)"),
        ("try:\n    a()\nexcept B:\n    c()\n    d()", "try:\n    a()\nexcept B:\n    raise"),
        ("if a: raise B", "if a: pass"),
    ],
)
def test_a_change_replaces_one_piece_of_the_text(text: str, result: str | None) -> None:
    if result is None:
        assert not any("f(b, a" in each for each in _results(text))
    else:
        assert result in _results(text)


@pytest.mark.parametrize(
    "text",
    [
        '"""1 < 2"""',
        "a = f'{1 < 2}'",
        "_log.warning('a', 1)",
        "a: int",
        "assert a",
        "a = zip(*b, strict=True)",
        "a = b",
        "a = min(b, c)",
    ],
)
def test_texts_logs_annotations_and_assertions_are_not_changed(text: str) -> None:
    assert not [change for change in changes("a.py", text) if change.before not in ("1",)]


@pytest.mark.slow("reads every module of the product")
@pytest.mark.parametrize("file", core_files([]))
def test_every_change_of_the_product_is_valid_python_and_changes_something(file: str) -> None:
    text, found = _changes_of(file)
    tree = ast.dump(ast.parse(text))
    for change in found[:: len(found) // 3 + 1]:
        assert ast.dump(ast.parse(change.applied(text))) != tree, change


def test_a_change_is_known_by_its_code_although_lines_move() -> None:
    before, after = ("def f():\n    if a < 1:\n        b()", "# new\n\ndef f():\n    if a < 1:\n        b()")
    assert [each.key for each in changes("a.py", before)] == [each.key for each in changes("a.py", after)]


@pytest.mark.slow("reads every module of the product")
def test_one_seed_draws_the_same_changes_and_another_one_others() -> None:
    def draw(seed: int) -> list[Change]:
        return drawn(20, seed, ["recipes/line"])

    assert draw(7) == draw(7) != draw(8)
    assert {change.file.rpartition("/")[0] for change in draw(7)} == {"recipes/line"}


def test_an_unknown_module_is_refused() -> None:
    with pytest.raises(ValueError, match="there is no module recipes/nothing"):
        drawn(1, 1, ["recipes/nothing"])


@pytest.mark.slow("reads every module of the product")
def test_each_change_that_was_judged_to_have_no_effect_still_exists() -> None:
    there = {change.key for file in core_files([]) for change in _changes_of(file)[1]}
    assert equivalents() <= there


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("FAILED tests/a.py::test_b", "tests/a.py::test_b"),
        ("FAILED tests/a.py::test_b - assert 1 == 2 - or so", "tests/a.py::test_b"),
        ("FAILED tests/a.py::test_b[a read lock] - assert 1", "tests/a.py::test_b[a read lock]"),
        ("ERROR    zkwire.session:session.py:7 of the log\nFAILED tests/a.py::test_b", "tests/a.py::test_b"),
        ("1 passed", None),
    ],
)
def test_the_first_failed_test_is_named_with_its_parameters(line: str, found: str | None) -> None:
    assert first_failed(f"...F\n{line}\n1 failed in 2 s\n") == found
