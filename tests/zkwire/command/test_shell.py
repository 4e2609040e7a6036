"""What a shell and `man` know of the commands, in share/, is what the parsers know."""

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from recipes.command.main import parser as zklock_parser
from tests.support.recipes import until
from tests.support.zklock import is_running
from zkwire.command.main import parser

ROOT = Path(__file__).resolve().parents[3]
SHARE = ROOT / "share"
MACROS = {"TH", "SH", "SS", "TP", "PP", "B", "I", "BR", "RI", "IR", "br", "nf", "fi", "nh", "ad"}
# In place of zkwire: answers with names that a shell or a terminal would carry out among them, and may then hang.
PROGRAM = r"""#!/bin/sh
echo "$@" > {0}/asked; echo $$ > {0}/pid; echo complaint >&2
printf '%s\n' app a:b '$(touch {0}/evaluated)' 'e\033[2J' é 'two words' zoo
[ -z "$HANG" ] || exec sleep 1000
"""


def _complete(*lines: str, changed: str = "", **env: str) -> list[set[str]]:
    """Return what a bash offers for the last word of each line."""
    script = f". {SHARE}/bash-completion/completions/zklock; complete -p zkwire zklock >/dev/null\n{changed}\n"
    for line in lines:
        script += f"""
            COMP_LINE={shlex.quote(line)} COMP_POINT={len(line)} COMP_WORDS=({shlex.join(line.split())})
            COMP_CWORD=${{#COMP_WORDS[@]}} _zkwire {line.split()[0]}
            printf '%s\\n' "${{COMPREPLY[@]-}}" .
        """
    command = ["bash", "--norc", "-uc", script]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, env={"PATH": os.environ["PATH"], **env})
    assert ran.stderr == ""
    return [set(found.split("\n")) - {""} for found in ran.stdout.split(".\n")[:-1]]


@pytest.mark.parametrize("top", [parser(), zklock_parser()])
def test_bash_completes_each_command_and_its_options(top: Any) -> None:
    commands = top.commands.choices
    options = [set(command._option_string_actions) for command in commands.values()]
    assert _complete(f"{top.prog} ", f"{top.prog} -", *(f"{top.prog} {name} -" for name in commands)) == [
        set(commands),
        set.intersection(*options).union(top._option_string_actions),
        *options,
    ]
    takes_value = {
        option: action.nargs != 0
        for command in commands.values()
        for option, action in command._option_string_actions.items()
    }
    offered = _complete(*(f"{top.prog} {option} " for option in takes_value))
    assert [not found for found in offered] == list(takes_value.values())
    stub = "_zkwire_nodes() { COMPREPLY=(/); }"
    paths = _complete(*(f"{top.prog} {name} --hosts x {word}" for word in ("", "/") for name in commands), changed=stub)
    wants_path = [any(action.dest == "path" for action in command._actions) for command in commands.values()]
    assert [found == {"/"} for found in paths] == 2 * wants_path


async def test_bash_completes_the_paths_of_nodes_and_is_silent(tmp_path: Path) -> None:
    (tmp_path / "zkwire").write_text(PROGRAM.format(tmp_path))
    (tmp_path / "zkwire").chmod(0o755)
    line = f"{tmp_path}/zklock show --tls --auth digest:me:S3CRET --hosts zk:1/$HOME --tls-ca /ca /a/"
    assert _complete(f"{line}", f"{line}a", f"{line}a:") == [
        {"/a/app", "/a/a:b", "/a/zoo"},
        {"/a/app", "/a/a:b"},
        {"b"},
    ]
    assert (tmp_path / "asked").read_text() == "ls /a --within 2 --tls --hosts zk:1/$HOME --tls-ca /ca\n"
    assert _complete(f"{line} /", f"{tmp_path}/zklock ru") == [set(), {"run"}]
    assert not (tmp_path / "evaluated").exists()
    # A read that waits for 3 seconds does not wait here.
    (found,) = _complete(f"{tmp_path}/zkwire ls /a", changed='read() { builtin read "${@/%3/0.2}"; }', HANG="1")
    assert found == {"/app", "/a:b"}
    assert (tmp_path / "asked").read_text() == "ls / --within 2\n"
    await until(lambda: not is_running(int((tmp_path / "pid").read_text())))


def test_bash_completes_the_command_that_zklock_runs() -> None:
    (found,) = _complete("zklock run /a -- ech")
    assert "echo" in found
    with_completion = _complete("zklock run /a -- echo x", changed="_command_offset() { COMPREPLY=(at $1); }")
    assert with_completion == [{"at", "4"}]


@pytest.mark.parametrize("top", [parser(), zklock_parser()])
def test_the_pages_name_each_command_and_option(top: Any) -> None:
    source = (SHARE / "man" / "man1" / f"{top.prog}.1").read_text(encoding="ascii")
    text = re.sub(r"\\f.", "", source).replace("\\-", "-").replace("\\\n", "")
    commands = top.commands.choices
    options = {name: command._option_string_actions for name, command in commands.items()}
    common = set.intersection(*map(set, options.values()))
    entries = re.findall(r"\.B (\w+)(.*)\n", text.partition(".SH COMMANDS\n")[2].partition(".SH OPTIONS\n")[0])
    assert {name: set(re.findall(r"--?\w[\w-]*", usage)) for name, usage in entries} == {
        name: {action.option_strings[0] for action in actions.values()} - common for name, actions in options.items()
    }
    named = set(re.findall(r"(?<![\w-])--?\w[\w-]*", text.partition(".SH EXAMPLES\n")[0].partition("COMMANDS")[2]))
    assert named == set(top._option_string_actions).union(*options.values())
    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    assert [name for name in commands if f"`{top.prog} {name}" not in page] == []
    optional = {"-h", "--help", "--long", "--recursive", "--number", "--parents", "--sequential"}
    assert [name for name in named - optional if name not in page] == []
    assert set(re.findall(r"(?m)^[.'] *(\w*)", source)) <= MACROS
    assert re.findall(r"\\[^-f(&\n]|\\f[^BIR]|\\\((?!aq)|\t| $", source) == []
    if shutil.which("groff"):
        ran = subprocess.run(
            ["groff", "-man", "-ww", "-Tutf8"], input=source, capture_output=True, text=True, timeout=60
        )
        assert (ran.returncode, ran.stderr) == (0, "")
        assert "SEE ALSO" in re.sub(".\b", "", ran.stdout)
