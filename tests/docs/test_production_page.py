"""docs/production.md: its table has every log message of the code."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "production.md").read_text(encoding="utf-8")
LEVELS = {"DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL", "EXCEPTION"}
LOGGERS = {"_log", "_LOGGER"}
SESSION_LOG = "zkwire.session.session_log"  # has a writer of messages that repeat
WARN_ONCE = "recipes.common.warn_once"  # logs with the logger of the recipe that makes a WarnOnce


def _messages() -> Iterator[tuple[str, str, str]]:
    """Each message in the code: its logger, its level and its format."""
    (of_warn_once,) = (message for _, _, message in _messages_of(WARN_ONCE, "self._log"))
    for folder in ("zkwire", "recipes"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            yield from _messages_of(module, *LOGGERS)
            if "WarnOnce(_log, " in path.read_text(encoding="utf-8"):
                yield module, "WARNING", of_warn_once


def _messages_of(module: str, *loggers: str) -> Iterator[tuple[str, str, str]]:
    text = (ROOT / module.replace(".", "/")).with_suffix(".py").read_text(encoding="utf-8")
    named = re.search(r'getLogger\("([\w.]+)"\)', text)
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        levels, message = [node.func.attr.upper()], node.args[0] if node.args else None
        if module == SESSION_LOG and node.func.attr in ("_write", "log"):
            levels = re.findall(r"logging\.([A-Z]+)", ast.unparse(node.args[0]))
            message = node.args[2 if node.func.attr == "_write" else 1]
        elif ast.unparse(node.func.value) not in loggers:
            continue
        for level in LEVELS & {*levels}:
            assert isinstance(message, ast.Constant), f"{module}: the format of a message is a literal"
            assert isinstance(message.value, str)
            yield named.group(1) if named else module, level, message.value


def _rows() -> list[tuple[str, str, str]]:
    rows = re.findall(r"^\| `([\w.]+)` \| ([A-Z]+) \| `(.+)` \|$", PAGE.partition("### All messages")[2], re.MULTILINE)
    return [(logger, level, message) for logger, level, message in rows]


def test_the_table_has_every_message_and_no_other() -> None:
    wanted = sorted(set(_messages()))
    assert len(wanted) > 20
    table = "\n".join(f"| `{logger}` | {level} | `{message}` |" for logger, level, message in wanted)
    assert sorted(_rows()) == wanted, f"the table should be:\n{table}"


def test_what_to_check_first_quotes_messages_of_the_table() -> None:
    first = PAGE.partition("### What to check first")[2].partition("### All messages")[0]
    messages = " ".join(message for _, _, message in _rows())
    for quoted in ("no session with", "lost the connection to", "this event loop did not run for", "acquired the"):
        assert f"`{quoted}" in first
        assert quoted in messages
