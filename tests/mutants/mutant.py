"""A deliberate fault: which text of which file it replaces, and which tests must notice."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).resolve().parent
ROOT: Final = FOLDER.parent.parent
# Small changes that a person has judged to have no effect: see sample.py.
EQUIVALENT: Final = FOLDER / "equivalent.toml"


@dataclass(frozen=True)
class Mutant:
    """One `[[mutant]]` of a file of mutants; `area` is the name of that file."""

    area: str
    name: str
    file: str
    old: str
    new: str
    tests: list[str]

    def occurrences(self) -> int:
        """Return how often the text to replace occurs in the file of the working tree."""
        path = ROOT / self.file
        return path.read_text(encoding="utf-8").count(self.old) if path.is_file() else 0

    def apply(self, root: Path) -> None:
        """Put the fault into the copy of the repository in `root`."""
        path = root / self.file
        path.write_text(path.read_text(encoding="utf-8").replace(self.old, self.new), encoding="utf-8")


def areas() -> list[str]:
    """Return the names of the files of mutants."""
    return sorted(path.stem for path in FOLDER.glob("*.toml") if path != EQUIVALENT)


def mutants(area: str) -> list[Mutant]:
    """Return the mutants of `tests/mutants/<area>.toml`.  Raises: KeyError, TypeError for a wrong or missing entry."""
    text = (FOLDER / f"{area}.toml").read_text(encoding="utf-8")
    return [Mutant(area, **entry) for entry in tomllib.loads(text)["mutant"]]
