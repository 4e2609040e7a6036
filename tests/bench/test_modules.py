"""bench/modules.py: how many modules a lock enters; this number may only become smaller."""

import pytest

from bench import modules


def test_a_lock_enters_few_modules(capsys: pytest.CaptureFixture[str]) -> None:
    assert modules.main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["calls", "into", "acquire", "release", "get"]
    assert {"recipes/lock", "zkwire/client/client"} <= {line.split()[0] for line in lines}
    assert modules.main(["--most", "1"]) == 1
