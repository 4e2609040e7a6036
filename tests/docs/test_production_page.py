"""docs/production.md: its table has every log message of the code, and a web application has one client."""

import ast
import atexit
import contextlib
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from zkwire.blocking import Portal
from zkwire.testing import Server

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "production.md").read_text(encoding="utf-8")
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


def test_the_first_requests_of_a_web_application_share_a_client_and_leave_no_thread_while_no_server_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    at_exit: list[Callable[[], None]] = []
    (code,) = (code for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "def zookeeper():" in code)
    with Portal() as portal, portal.enter(Server()) as server, ThreadPoolExecutor(8) as threads:
        code = (
            code.partition("\nprint(")[0]
            .replace("127.0.0.1:2181", server.hosts)
            .replace('", within=2.0', '", within=0')
        )
        names: dict[str, Any] = {}
        exec(compile(code, "the web application", "exec"), names)
        portal.call(server.stop)
        monkeypatch.setattr(atexit, "register", at_exit.append)
        waiting = threading.Barrier(8)

        def request(account: int) -> str | None:
            waiting.wait()
            with contextlib.suppress(TimeoutError):
                return str(names["charge"](account))
            return None

        assert list(threads.map(request, range(8))) == [None] * 8
        assert [thread.name for thread in threading.enumerate()].count("zkwire portal") == 1  # the server's
        portal.call(server.start)
        assert list(threads.map(request, range(8))) == [f"charged {account}, certain for True" for account in range(8)]
        assert len(server.sessions) == 1
        for end in reversed(at_exit):
            end()
        assert server.sessions == []
