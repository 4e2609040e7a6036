"""How the programs that use other clients are fetched and built, in a folder that is thrown away afterwards.

`python -m bench.peers` and `python -m tests.interop` use the same clients.  The files in programs/ beside this one say
which versions: go.mod, Cargo.toml and pom.xml.  None of the clients is a dependency of zkwire.
"""

import os
import shutil
import subprocess
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Final

MANIFESTS: Final = Path(__file__).parent / "programs"
TIME_LIMIT: Final = 900.0  # a compiler may have much to do

Command = Sequence[str | Path]


class MissingError(Exception):
    """Something that is needed for a client is missing; the message says what and why."""


def run(command: Command, what: str, *, folder: Path | None = None) -> str:
    """Run a command and return what it printed.

    Raises:
        MissingError: if something that is needed is missing.
    """
    try:
        done = subprocess.run(
            list(map(str, command)),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIME_LIMIT,
            cwd=folder,
            env={"HOME": str(Path.home()), **os.environ},  # go keeps what it fetches there
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MissingError(f"{what}: {error}") from error
    if done.returncode:
        raise MissingError(f"{what}: {' '.join(done.stdout.split()) or f'exit status {done.returncode}'}")
    return done.stdout


def tool(name: str, what: str) -> str:
    """Return where the command `name` is.

    Raises:
        MissingError: if something that is needed is missing.
    """
    found = shutil.which(name)
    if found is None:
        raise MissingError(f"{what} needs the command {name}")
    return found


def python_with(package: str, folder: Path) -> Path:
    """Install a package into an environment of its own in `folder`, and return its Python.

    Raises:
        MissingError: if something that is needed is missing.
    """
    environment = folder / f"venv-{package}"
    python = environment / "bin" / "python"
    if not python.exists():
        try:
            venv.create(environment, with_pip=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise MissingError(f"no virtual environment could be made: {error}") from error
    run([python, "-m", "pip", "--disable-pip-version-check", "--quiet", "install", package], f"pip: {package}")
    return python


def with_curator(source: Path, folder: Path) -> Command:
    """Fetch Curator by Maven, compile a source file, and return the command that runs its class."""
    java, javac, maven = (tool(name, "Curator") for name in ("java", "javac", "mvn"))
    jars, classes = folder / "curator", folder / "classes"
    copy: Command = [maven, "--quiet", "--batch-mode", "-f", MANIFESTS / "curator" / "pom.xml"]
    run([*copy, "dependency:copy-dependencies", f"-DoutputDirectory={jars}"], "Maven cannot fetch Curator")
    run([javac, "-cp", f"{jars}/*", "-d", classes, source], f"javac cannot compile {source.name}")
    # Many of them run at a time: a small heap, no threads for collecting it, and the fast compiler alone.
    light = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
    return [java, *light, "-cp", f"{classes}{os.pathsep}{jars}/*", source.stem]


def with_go_zk(source: Path, folder: Path) -> Command:
    """Fetch go-zookeeper/zk, build a program of one file, and return its command."""
    go = tool("go", "go-zk")
    project = shutil.copytree(MANIFESTS / "go", folder / "go", dirs_exist_ok=True)
    shutil.copy(source, project / "main.go")
    run([go, "mod", "tidy"], "go cannot fetch go-zk", folder=project)
    run([go, "build", "-o", "program", "."], "go cannot build go-zk", folder=project)
    return [project / "program"]


def with_rust_client(source: Path, folder: Path) -> Command:
    """Fetch kezhuw/zookeeper-client-rust, build a program of one file, and return its command."""
    cargo = tool("cargo", "the Rust client")
    project = shutil.copytree(MANIFESTS / "rust", folder / "rust", dirs_exist_ok=True)
    (project / "src").mkdir(exist_ok=True)
    shutil.copy(source, project / "src" / "main.rs")
    # Not in the folder of another project, which the variable may name.
    target = project / "target"
    build: Command = [cargo, "build", "--quiet", "--release", "--target-dir", target]
    run(build, "cargo cannot build the Rust client", folder=project)
    return [target / "release" / "program"]
