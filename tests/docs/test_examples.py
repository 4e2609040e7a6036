"""The programs of docs/examples that need no package but ours; `make thirdparty` tries the others."""

import asyncio
import re
import signal

import pytest

import zkwire
from tests.docs.programs import EXAMPLES, ROOT, started, until_printed
from zkwire.testing import RealServer, Server


async def test_the_next_process_leads_when_sigterm_ends_the_leader() -> None:
    async with Server() as server, started("scheduler.py", server.hosts, INTERVAL="0.1") as first:
        leading = await until_printed(first, "job of the leader")
        async with started("scheduler.py", server.hosts, INTERVAL="0.1") as second:
            waiting = asyncio.create_task(until_printed(second, "job of the leader"))
            async with zkwire.connect(server.hosts) as zk:
                async for names in zk.children("/scheduler/leader"):
                    if names is not None and len(names) == 2:
                        break
            assert not waiting.done()
            first.terminate()
            assert int((await waiting).split()[-1]) > int(leading.split()[-1])  # the tokens
            assert await first.wait() == 0


async def test_settings_follow_the_node() -> None:
    async with Server() as server, zkwire.connect(server.hosts) as zk, started("settings.py", server.hosts) as program:
        assert await until_printed(program, "settings") == "settings: {}"
        await zk.create("/settings/shop", b'{"discount": 10}', make_parents=True)
        assert await until_printed(program, "settings") == "settings: {'discount': 10}"
        await zk.set("/settings/shop", b"{")
        assert "the former settings stay" in await until_printed(program, "settings")
        await zk.set("/settings/shop", b'{"discount": 20}')
        assert await until_printed(program, "settings") == "settings: {'discount': 20}"


@pytest.mark.parametrize(
    ("program", "before", "after", "status"),
    [
        ("scheduler.py", "job of the leader", "job of the leader", 0),
        ("settings.py", "settings: ", "discount", -signal.SIGTERM),
        ("nightly.py", "begins", "is done", 0),
    ],
)
async def test_a_program_says_that_its_server_was_killed_and_goes_on(
    program: str, before: str, after: str, status: int, zookeeper_own: RealServer
) -> None:
    async with started(program, zookeeper_own.hosts, INTERVAL="0.1", SECONDS="4") as running:
        await until_printed(running, before)
        zookeeper_own.kill()
        await until_printed(running, "lost the connection to")
        await zookeeper_own.start()
        async with zkwire.connect(zookeeper_own.hosts) as zk:
            await zk.create("/settings/shop", b'{"discount": 10}', make_parents=True)
        await until_printed(running, after)
        if after != "is done":
            running.terminate()
        assert b"Traceback" not in (await running.communicate())[0]
        assert running.returncode == status


async def test_the_job_is_done_once_a_day() -> None:
    async with (
        Server() as server,
        started("nightly.py", server.hosts) as first,
        started("nightly.py", server.hosts) as late,
    ):
        printed = b"".join([(await each.communicate())[0] for each in (first, late)])
        assert (first.returncode, late.returncode, printed.count(b"is done")) == (0, 0, 1)


def test_every_program_is_tested() -> None:
    tests = [ROOT / "tests" / "docs" / name for name in ("test_examples.py", "thirdparty.py")]
    tested = {
        name for test in tests for name in re.findall(r"started\(.*?(\w+)(?:\.py|:app)\"", test.read_text("utf-8"))
    }
    assert tested == {path.stem for path in EXAMPLES.glob("*.py")}
