"""The end of `make mutants` by a signal."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants.mutant import ROOT

# As a trial does it: a thread waits for a process in a session of its own, which has started another such process.
RUN = """\
import tempfile, threading
from subprocess import run
from tests.mutants.ending import end_all_with_us

def trial():
    while True:
        run(["sh", "-c", "trap '' TERM; setsid -w sleep 600 & echo up; wait"], start_new_session=True)

end_all_with_us()
print(tempfile.mkdtemp(), flush=True)
waiting = threading.Thread(target=trial)
waiting.start()
waiting.join()
"""


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_processes_in_sessions_of_their_own_too_and_removes_the_folders(number: int) -> None:
    with subprocess.Popen([sys.executable, "-c", RUN], cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        folder = Path(process.stdout.readline().strip())
        assert folder.is_dir()
        assert process.stdout.readline() == "up\n"
        process.send_signal(number)
        try:  # the end of the output: all four have had it, and none has it any more
            assert process.communicate(timeout=30)[0] == ""
        finally:
            process.kill()
    assert process.returncode == 128 + number
    assert not folder.exists()
    assert not folder.parent.exists()
