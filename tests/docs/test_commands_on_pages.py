"""Every command on a page names a target, a program and options that exist."""

import re
import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
PAGES = [
    page.read_text(encoding="utf-8")
    for page in {*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")} - {ROOT / "CHANGELOG.md"}
]
LINES = {
    line.partition(" #")[0].strip()
    for page in PAGES
    for block in re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    for line in block.splitlines()
}
IN_TEXT = {code for page in PAGES for code in re.findall(r"`((?:make|z\w+|python -m) [^`]+)`", page)}
COMMANDS = sorted(line for line in LINES | IN_TEXT if not re.match(r".*pip install|export|.*-m pytest", line))


@pytest.mark.filterwarnings("ignore:.*found in sys.modules:RuntimeWarning")
@pytest.mark.parametrize("command", COMMANDS)
def test_what_a_command_names_exists(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = command.partition(" -- ")[0]  # zklock runs the rest
    program, first, second = re.findall(r"[\w./-]+", f"{command} - -")[:3]
    module, verb = {"zkwire": "zkwire", "zklock": "recipes"}.get(program, second), [first]
    if program == "make":
        rule = re.search(rf"^{first}:.*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)
        assert rule is not None
        variables = re.findall(r" ([A-Z]+)=", command)
        assert [name for name in variables if not re.search(rf"^{name} \?=", MAKEFILE, re.MULTILINE)] == []
        if "--" not in command:
            return
        module, verb = re.findall(r"\$\(PY\) (?:-m )?([\w./]+) ", rule[1])[-1], []
    elif program.endswith("python"):
        verb = []
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "argv", [program, *verb, "--help"])
    run = runpy.run_path if module.endswith(".py") else runpy.run_module
    with pytest.raises(SystemExit) as ended:
        run(module, run_name="__main__")
    assert ended.value.code == 0
    options = re.findall(r"(?<!\S)\[?(--?[a-z][\w-]*)", command.replace('="', " ").replace("=-", " -"))
    printed = capsys.readouterr().out
    assert [option for option in options if not re.search(rf"{option}\b", printed) and option != "-m"] == []
