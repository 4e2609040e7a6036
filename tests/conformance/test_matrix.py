"""The run against a server that has an address, and the report of what it lacks."""

import subprocess
import sys
from pathlib import Path

from tests.conformance.matrix import result
from zkwire.testing import ServerProcess


def test_conformance_says_of_a_server_with_an_address_what_it_lacks(memory: ServerProcess, tmp_path: Path) -> None:
    """What needs a server of its own is counted and not run; what fails is named."""
    files = ["tests/conformance/test_ttl.py", "tests/recipes/test_lock_trials.py", "-k", "ttl or restart"]
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not memory", f"--address={memory.hosts}", *files]
    done = subprocess.run([*command, f"--junitxml={tmp_path}/ran.xml"], capture_output=True, text=True, check=False)
    ran = result("it", tmp_path / "ran.xml", done.returncode, 1.0)
    assert (ran.passed > 0, ran.failed, ran.lacks) == (True, 0, ()), done.stdout
    assert f"{memory.hosts}: 1 tests are left out, because they start or stop a server" in done.stdout
    lacking = '<properties><property name="lacks" value="addWatch (3.6)"/></properties><failure/>'
    cases = [f"<testcase>{lacking}</testcase>"] * 2 + ["<testcase classname='a' name='b'><error/></testcase>"]
    (tmp_path / "made.xml").write_text(f"<testsuite>{''.join(cases)}<testcase/></testsuite>")
    made = result("it", tmp_path / "made.xml", 1, 1.0)
    assert (made.passed, made.failed, made.lacks) == (1, 3, ("addWatch (3.6)", "a.b"))
