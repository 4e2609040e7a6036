"""The pages in docs/reference are those that docs/reference.py makes from the docstrings now."""

import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_pages_are_up_to_date() -> None:
    made = runpy.run_path(str(ROOT / "docs" / "reference.py"))["pages"]()
    folder = ROOT / "docs" / "reference"
    assert {page.name for page in folder.iterdir()} == set(made)
    old = [name for name, page in made.items() if (folder / name).read_text(encoding="utf-8") != page]
    assert old == [], "run `make reference`"
