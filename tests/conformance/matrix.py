"""Run the suite against one version of ZooKeeper after the other: `make conformance VERSIONS="3.5.10 3.9.4"`.

Or against a server that runs, of any kind: `make conformance ADDRESS=host:port`.  It should be one for this purpose,
because the tests leave nodes there.  Those that start or stop a server are counted, and not run.  What fails is listed:
what the server lacks of ZooKeeper, as far as that came with a certain version, and the other tests by their names.

Each version is fetched as `make zookeeper` does. It runs all tests that hold for every server: the conformance
tests, without the server in memory, and the recipes' tests. A test that a version cannot pass is marked with
`since`; it runs too, and must fail in the expected way.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from tests.support.given import LACKS
from zkwire.testing.fetch import FetchError, fetch

STORE = Path(".zookeeper")
# The waiting line's decisions are tested without a server.
SUITE = ("tests/conformance", "tests/recipes", "--ignore=tests/recipes/line/test_position.py")


@dataclass(frozen=True, slots=True)
class Result:
    """The result of the suite on one version; `differing` tests failed as expected of that version."""

    version: str
    passed: int
    differing: int
    failed: int
    seconds: float
    lacks: tuple[str, ...] = ()


def run(version: str, options: Sequence[str]) -> Result:
    """Run the suite against a version that is in the store, or a server with an address."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        # Native tracebacks: for its own kind, pytest parses a module for each expected failure, and CPython 3.11
        # can fail there when the garbage collector runs meanwhile.
        shape = ["--quiet", "--tb=native", "-m", "not memory", f"--junitxml={report}"]
        shape += [f"--address={version}"] if ":" in version else []
        command = [sys.executable, "-m", "pytest", *shape, *SUITE]
        environment = os.environ | {"ZOOKEEPER_HOME": str((STORE / version).resolve())}
        code = subprocess.run([*command, *options], env=environment, check=False).returncode
        return result(version, report, code, time.monotonic() - start)


def result(version: str, report: Path, code: int, seconds: float) -> Result:
    """Read pytest's report, if there is one, of a run that ended with `code`."""
    tests = list(ElementTree.parse(report).iter("testcase")) if report.exists() else []
    failed = [test for test in tests if test.find("failure") is not None or test.find("error") is not None]
    differing = [test for test in tests if test not in failed and test.find("skipped") is not None]
    passed = len(tests) - len(failed) - len(differing)
    # A run that ended before its tests has failed, whatever the report says.
    lacks = dict.fromkeys(_lacking(test) for test in failed)
    return Result(version, passed, len(differing), len(failed) or int(code != 0), seconds, tuple(lacks))


def _lacking(test: ElementTree.Element) -> str:
    """Return what a server lacks that fails `test`: what came with a certain version, or the name of the test."""
    later = [each.get("value", "") for each in test.iter("property") if each.get("name") == LACKS]
    return "; ".join(later) or f"{test.get('classname')}.{test.get('name')}"


def table(results: Sequence[Result]) -> str:
    """Return the results as a Markdown table."""
    lines = ["| ZooKeeper | passed | fail as expected of the version | failed | seconds |", "|---|---|---|---|---|"]
    lines += [f"| {r.version} | {r.passed} | {r.differing} | {r.failed} | {r.seconds:.0f} |" for r in results]
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    """Run the named versions and return the exit code; the first argument with a dash and all after it go to pytest."""
    dashes = [at for at, argument in enumerate(arguments) if argument.startswith("-")]
    end = dashes[0] if dashes else len(arguments)
    versions, options = arguments[:end], arguments[end:]
    if not versions:
        print('name versions, lines or an address: make conformance VERSIONS="3.5.10 3.9"', file=sys.stderr)
        return 2
    results = []
    for wanted in versions:
        if ":" in wanted:
            results.append(run(wanted, options))
            print("".join(f"{wanted} fails: {each}\n" for each in results[-1].lacks), end="")
            continue
        try:
            version = fetch(wanted, STORE)
        except FetchError as error:
            print(error, file=sys.stderr)
            results.append(Result(wanted, 0, 0, 1, 0.0))
            continue
        print(f"-- ZooKeeper {version}", flush=True)
        results.append(run(version, options))
    print(table(results))
    return int(any(result.failed for result in results))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
