"""docs/observing.md runs as printed, except for the address of the server."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.support.scripts import run_script
from zkwire.testing import RealServer

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "observing.md").read_text(encoding="utf-8"), re.DOTALL)


def _run(number: int, server: RealServer, folder: Path) -> subprocess.CompletedProcess[str]:
    example = EXAMPLES[number]
    assert example.count("127.0.0.1:2181") == 1
    return run_script(example.replace("127.0.0.1:2181", server.hosts), folder)


def test_there_are_two_examples() -> None:
    assert len(EXAMPLES) == 2


def test_the_example_that_logs(zookeeper: RealServer, tmp_path: Path) -> None:
    lines = [line for line in _run(0, zookeeper, tmp_path).stderr.splitlines() if line.startswith("zookeeper: ")]
    assert lines[0] == f"zookeeper: session with {zookeeper.hosts}: CONNECTED"
    assert re.fullmatch(r"zookeeper: exists / took \d\.\d{3} s", lines[1])
    assert lines[2].startswith("zookeeper: getData /no/such/node failed: getData /no/such/node: no such node")
    assert lines[-1] == f"zookeeper: session with {zookeeper.hosts}: CLOSED"


def test_the_example_that_counts(zookeeper: RealServer, tmp_path: Path) -> None:
    lines = _run(1, zookeeper, tmp_path).stdout.splitlines()
    for wanted in (
        'zookeeper_events_total{type="CREATED"} 1',
        'zookeeper_requests_total{operation="closeSession",outcome="ok"} 1',
        'zookeeper_requests_total{operation="create",outcome="ok"} 1',
        'zookeeper_requests_total{operation="exists",outcome="NoNodeError"} 1',
        'zookeeper_states_total{state="CONNECTED"} 1',
        "zookeeper_connected 0",
    ):
        assert wanted in lines
    number = r"\d+(\.\d+)?"
    assert all(re.fullmatch(rf'[a-z_]+(\{{[a-z]+="\w+"(,[a-z]+="\w+")*\}})? {number}', line) for line in lines)
