"""The table of docs/logging.md is the list of all messages in the code, with their loggers and levels."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.support.scripts import run_script

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "logging.md").read_text(encoding="utf-8")
LEVELS = {"debug", "info", "warning", "error", "critical", "exception"}
LOGGERS = {"_log", "_LOGGER"}
NOTICES = "recipes.common.notices"  # logs with the logger of the recipe that makes a Notices


def _messages() -> Iterator[tuple[str, str, str]]:
    """Each message in the code: its logger, its level and its format."""
    (of_notices,) = (message for _, _, message in _messages_of(NOTICES, "self._log"))
    for folder in ("zkwire", "recipes"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            yield from _messages_of(module, *LOGGERS)
            if "Notices(_log, " in path.read_text(encoding="utf-8"):
                yield module, "WARNING", of_notices


def _messages_of(module: str, *loggers: str) -> Iterator[tuple[str, str, str]]:
    text = (ROOT / module.replace(".", "/")).with_suffix(".py").read_text(encoding="utf-8")
    named = re.search(r'getLogger\("([\w.]+)"\)', text)
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if ast.unparse(node.func.value) in loggers and node.func.attr in LEVELS:
            message = node.args[0]
            assert isinstance(message, ast.Constant), f"{module}: the format of a message is a literal"
            assert isinstance(message.value, str)
            yield named.group(1) if named else module, node.func.attr.upper(), message.value


def _rows() -> list[tuple[str, str, str]]:
    rows = re.findall(r"^\| `([\w.]+)` \| ([A-Z]+) \| `(.+)` \|$", PAGE.partition("## All messages")[2], re.MULTILINE)
    return [(logger, level, message) for logger, level, message in rows]


def test_the_table_has_every_message_and_no_other() -> None:
    wanted = sorted(set(_messages()))
    assert len(wanted) > 20
    table = "\n".join(f"| `{logger}` | {level} | `{message}` |" for logger, level, message in wanted)
    assert sorted(_rows()) == wanted, f"the table should be:\n{table}"


def test_what_to_look_at_first_quotes_messages_of_the_table() -> None:
    first = PAGE.partition("## What to look at first")[2].partition("## All messages")[0]
    messages = " ".join(message for _, _, message in _rows())
    for quoted in ("no session with", "lost the connection to", "this event loop did not run for", "acquired the"):
        assert f"`{quoted}" in first
        assert quoted in messages


def test_the_example_runs(tmp_path: Path) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    run_script(example, tmp_path)
