"""The fixtures as a user meets them: a test module in an empty folder, run by a pytest without any plugin of ours."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
HEAD = "import asyncio, pytest, zkwire\nfrom zkwire.testing import VirtualClock\n"
A_PYTEST_OF_ITS_OWN = pytest.mark.slow("it starts pytest; one run is enough for a quick run")
IMPORT = "from zkwire.testing.fixtures import Options, zk, zk_server\n"


def run(folder: Path, modules: dict[str, str], conftest: str = "") -> str:
    """Run test modules as a user would, warnings being errors; return what pytest printed."""
    (folder / "conftest.py").write_text(conftest, encoding="utf-8")
    for name, module in modules.items():
        (folder / f"test_{name}.py").write_text(HEAD + module, encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rA", "-W", "error", "--strict-markers"],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return ran.stdout + ran.stderr


def outcomes(printed: str, module: str) -> dict[str, str]:
    found = re.findall(rf"(?m)^(PASSED|FAILED|ERROR) test_{module}\.py::(\S+)", printed)
    return {name: outcome for outcome, name in found}


# Modules that one pytest runs together: the text, the outcome of each test, and what is printed.
# docs/testing.md has further examples, which tests/docs/test_testing_page.py runs.
TOGETHER: dict[str, tuple[str, dict[str, str], list[str]]] = {
    "options": (
        """
@pytest.fixture
def zk_options():
    return Options({"clock": VirtualClock()}, {"session_timeout": 30.0}, 0.5)

class TestClass:
    @pytest.mark.parametrize("name", ["/a", "/b"])
    async def test_each_has_its_own_server(self, zk, zk_server, name):
        assert zk.session_timeout == 30
        assert await zk.create("/node") == "/node"
        assert zk_server.sessions == [zk.session_id]

async def test_limit(zk):
    await asyncio.sleep(60)

def test_plain():
    pass
""",
        {
            "TestClass::test_each_has_its_own_server[/a]": "PASSED",
            "TestClass::test_each_has_its_own_server[/b]": "PASSED",
            "test_limit": "FAILED",
            "test_plain": "PASSED",
        },
        ["the test did not end within 0.5 s"],
    ),
    "left": (
        """
async def test_task(zk):
    asyncio.create_task(asyncio.sleep(60), name="left by a test")

async def test_exception(zk):
    async def fail():
        raise ZeroDivisionError("nothing handled it")
    task = asyncio.create_task(fail())
    await asyncio.sleep(0)

async def test_assertion(zk):
    assert await zk.exists("/") is None

async def test_next(zk):
    await zk.exists("/")
""",
        {"test_task": "FAILED", "test_exception": "FAILED", "test_assertion": "FAILED", "test_next": "PASSED"},
        ["a task was left: <Task pending name='left by a test'", "ZeroDivisionError: nothing handled it"],
    ),
    "faults_left_at_work": (
        """
async def test_paused_and_held(zk, zk_server):
    zk_server.hold_replies()
    zk_server.pause()

async def test_refused(zk, zk_server):
    zk_server.refuse_connections()
    zk_server.drop()

async def test_stopped(zk, zk_server):
    await zk_server.stop()
""",
        {"test_paused_and_held": "PASSED", "test_refused": "PASSED", "test_stopped": "PASSED"},
        [],
    ),
    "blocking": (
        """
def test_client(zk):
    pass
""",
        {"test_client": "ERROR"},
        ["asks for zk, which lives in the event loop of an async test: make the test `async def`"],
    ),
    "examples": (
        """
from hypothesis import HealthCheck, given, settings, strategies as st

shared = settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

names = []

@shared
@given(st.integers())
async def test_examples(zk, number):
    names.append(await zk.create("/a", sequential=True))
    assert names == sorted(set(names))

@shared
@given(st.integers())
async def test_failing(zk, zk_server, number):
    assert await zk.exists("/") is None

@shared
@given(number=st.integers())
async def test_leaving_a_task(zk, number):
    asyncio.create_task(asyncio.sleep(60), name="forgotten")

async def test_next(zk):
    assert len(names) >= 5
    await zk.create("/a")
""",
        {"test_examples": "PASSED", "test_failing": "FAILED", "test_leaving_a_task": "FAILED", "test_next": "PASSED"},
        ["a task was left: <Task pending name='forgotten'"],
    ),
    "unittest": (
        """
import unittest

class TestCase(unittest.IsolatedAsyncioTestCase):
    @pytest.fixture(autouse=True)
    def _with_zk(self, zk):
        self.zk = zk

    async def test_it(self):
        await self.zk.exists("/")

class TestWithServer(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        from zkwire.testing import Server
        server = await self.enterAsyncContext(Server())
        self.zk = await self.enterAsyncContext(zkwire.connect(server.hosts))

    async def test_it(self):
        assert await self.zk.exists("/") is not None
""",
        {"TestCase::test_it": "ERROR", "TestWithServer::test_it": "PASSED"},
        ["runs in an event loop of unittest", "asyncSetUp"],
    ),
}


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What pytest prints of all modules in TOGETHER."""
    modules = {name: IMPORT + module for name, (module, _, _) in TOGETHER.items()}
    return run(tmp_path_factory.mktemp("together"), modules)


@A_PYTEST_OF_ITS_OWN
@pytest.mark.parametrize("name", TOGETHER)
def test_each_test_of_a_module_has_its_outcome_and_says_why(printed: str, name: str) -> None:
    _, expected, said = TOGETHER[name]
    assert outcomes(printed, name) == expected, printed
    assert [text for text in said if text not in printed] == []
    assert "ResourceWarning" not in printed


RERUNS = """
import pytest
from _pytest.runner import runtestprotocol

@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    # As plug-ins for flaky tests do: a test that fails is run once more, with new fixtures.
    reports = runtestprotocol(item, nextitem=nextitem, log=False)
    if any(report.failed for report in reports):
        item._initrequest()
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    return True
"""


@A_PYTEST_OF_ITS_OWN
def test_a_test_that_is_run_again_gets_a_new_server(tmp_path: Path) -> None:
    module = """
seen = []

async def test_flaky(zk, zk_server):
    seen.append(zk_server)
    await zk.create("/a")
    assert len(seen) == 2, "fails at first"
    assert seen[0] is not seen[1]
"""
    printed = run(tmp_path, {"users": IMPORT + module}, conftest=RERUNS)
    assert outcomes(printed, "users") == {"test_flaky": "PASSED"}, printed
