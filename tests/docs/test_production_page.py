"""docs/production.md: its table has every log message of the code, and its scripts run as printed."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.scripts import run_script
from zkwire.testing import ServerProcess

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "production.md").read_text(encoding="utf-8")
# The other blocks run in tests/docs/test_examples_on_pages.py.
SCRIPTS = [code for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if re.search("2181|basicConfig", code)]
LEVELS = {"debug", "info", "warning", "error", "critical", "exception"}
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
        level, message = node.func.attr, node.args[0] if node.args else None
        if ast.unparse(node.func) == "self._write" and module == SESSION_LOG:
            level, message = ast.unparse(node.args[0]).removeprefix("logging.").lower(), node.args[2]
        elif ast.unparse(node.func.value) not in loggers:
            continue
        if level in LEVELS:
            assert isinstance(message, ast.Constant), f"{module}: the format of a message is a literal"
            assert isinstance(message.value, str)
            yield named.group(1) if named else module, level.upper(), message.value


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


NUMBER = r"\d+(\.\d+)?(e-\d+)?"
# For each script what its output matches, line by line: the one that logs, an observer, two that block.
PRINTED = [
    [],
    [
        'zookeeper_events_total{type="CREATED"} 1',
        'zookeeper_requests_total{operation="closeSession",outcome="ok"} 1',
        'zookeeper_requests_total{operation="create",outcome="ok"} 1',
        'zookeeper_requests_total{operation="exists",outcome="NoNodeError"} 1',
        'zookeeper_states_total{state="CONNECTED"} 1',
        rf'zookeeper_request_seconds_total{{operation="create"}} {NUMBER}',
        "zookeeper_connected 0",
    ],
    ["/greeting", "the fencing token is a number: True"],
    ["charged 7, certain for True"],
]


@pytest.mark.parametrize("number", range(len(PRINTED)))
def test_a_script_runs(number: int, tmp_path: Path) -> None:
    assert len(SCRIPTS) == len(PRINTED)
    with ServerProcess() as server:
        printed = run_script(SCRIPTS[number].replace("127.0.0.1:2181", server.hosts), tmp_path)
    lines = printed.splitlines()
    assert [wanted for wanted in PRINTED[number] if not any(re.fullmatch(wanted, line) for line in lines)] == []
    if number == 1:
        metric = rf'[a-z_]+(\{{[a-z]+="\w+"(,[a-z]+="\w+")*\}})? {NUMBER}'
        assert [line for line in lines if not re.fullmatch(metric, line)] == []
