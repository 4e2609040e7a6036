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
IMPORT = "from zkwire.testing.fixtures import Options, zk, zk_process, zk_server\n"


def run(folder: Path, modules: dict[str, str], conftest: str = "", *options: str) -> str:
    """Run test modules as a user would, warnings being errors; return what pytest printed."""
    (folder / "conftest.py").write_text(conftest, encoding="utf-8")
    for name, module in modules.items():
        (folder / f"test_{name}.py").write_text(HEAD + module, encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rA", "-W", "error", "--strict-markers", *options],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return ran.stdout + ran.stderr


def outcomes(printed: str, module: str = "users") -> dict[str, str]:
    found = re.findall(rf"(?m)^(PASSED|FAILED|ERROR) test_{module}\.py::(\S+)", printed)
    return {name: outcome for outcome, name in found}


# Modules that one pytest runs together.
TOGETHER = {
    "alone": """
@pytest.fixture
def service(zk):
    return zk

async def test_client(zk):
    assert await zk.create("/a") == "/a"

async def test_each_test_has_a_server_of_its_own(zk):
    assert await zk.create("/a") == "/a"

async def test_server(zk_server):
    async with zkwire.connect(zk_server.hosts) as client:
        assert await client.exists("/") is not None

async def test_both(zk_server, zk):
    assert zk_server.sessions == [zk.session_id]

async def test_other_fixtures(service, tmp_path):
    assert await service.exists("/") is not None

@pytest.mark.parametrize("name", ["/x", "/y"])
async def test_parameters(zk, name):
    assert await zk.create(name) == name

class TestClass:
    async def test_method(self, zk):
        assert await zk.exists("/") is not None

def test_plain():
    pass
""",
    "process": """
@pytest.fixture
def zk_options():
    return Options(process={"tick_time": 0.1, "max_session_timeout": 0.7})

def test_it(zk_process):
    async def main():
        async with zkwire.connect(zk_process.hosts, session_timeout=30) as zk:
            return zk.session_timeout
    assert asyncio.run(main()) == 0.7
""",
    "options": """
@pytest.fixture
def zk_options():
    return Options({"clock": VirtualClock()}, {"session_timeout": 30.0}, 0.5)

async def test_clock(zk, zk_server):
    assert zk.session_timeout == 30
    zk_server.clock.advance(40)
    assert zk_server.sessions == []

async def test_limit(zk):
    await asyncio.sleep(60)
""",
    "left": """
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
    "faults": """
async def test_paused(zk, zk_server):
    zk_server.pause()

async def test_held(zk, zk_server):
    zk_server.hold_replies()

async def test_refused(zk, zk_server):
    zk_server.refuse_connections()
    zk_server.drop()

async def test_stopped(zk, zk_server):
    await zk_server.stop()
""",
    "blocking": """
def test_client(zk):
    pass

def test_server(zk_server):
    pass
""",
    "examples": """
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
    "unittest": """
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
}


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What pytest prints of all modules in TOGETHER."""
    return run(tmp_path_factory.mktemp("together"), {name: IMPORT + module for name, module in TOGETHER.items()})


def test_the_import_alone_is_enough(printed: str) -> None:
    assert set(outcomes(printed, "alone").values()) == {"PASSED"}, printed
    assert len(outcomes(printed, "alone")) == 9


def test_options_reach_the_process(printed: str) -> None:
    assert outcomes(printed, "process") == {"test_it": "PASSED"}, printed


def test_options_reach_server_client_and_limit(printed: str) -> None:
    assert outcomes(printed, "options") == {"test_clock": "PASSED", "test_limit": "FAILED"}, printed
    assert "the test did not end within 0.5 s" in printed


def test_what_a_test_leaves_behind_fails_it(printed: str) -> None:
    expected = {"test_task": "FAILED", "test_exception": "FAILED", "test_assertion": "FAILED", "test_next": "PASSED"}
    assert outcomes(printed, "left") == expected, printed
    assert "a task was left: <Task pending name='left by a test'" in printed
    assert "ZeroDivisionError: nothing handled it" in printed


def test_faults_left_at_work_do_not_hang_the_end(printed: str) -> None:
    assert set(outcomes(printed, "faults").values()) == {"PASSED"}, printed
    assert len(outcomes(printed, "faults")) == 4


def test_a_test_that_is_not_async_fails_with_an_instruction(printed: str) -> None:
    assert outcomes(printed, "blocking") == {"test_client": "ERROR", "test_server": "ERROR"}, printed
    for name in ("zk", "zk_server"):
        assert f"asks for {name}, which lives in the event loop of an async test: make the test `async def`" in printed


RERUNS = """
import pytest
from _pytest.runner import runtestprotocol

@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    # As plug-ins for flaky tests do: a test that fails is run once more, with new fixtures.
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = runtestprotocol(item, nextitem=nextitem, log=False)
    if any(report.failed for report in reports):
        item._initrequest()
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
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
    assert outcomes(printed) == {"test_flaky": "PASSED"}, printed


def test_examples_of_hypothesis_share_the_server_of_their_test(printed: str) -> None:
    expected = {"test_examples": "PASSED", "test_failing": "FAILED", "test_leaving_a_task": "FAILED"}
    assert outcomes(printed, "examples") == {**expected, "test_next": "PASSED"}, printed
    assert "a task was left: <Task pending name='forgotten'" in printed
    assert "ResourceWarning" not in printed


def test_a_unittest_test_case_fails_with_an_instruction(printed: str) -> None:
    assert outcomes(printed, "unittest")["TestWithServer::test_it"] == "PASSED", printed
    assert outcomes(printed, "unittest")["TestCase::test_it"] == "ERROR", printed
    assert "runs in an event loop of unittest" in printed
    assert "asyncSetUp" in printed
