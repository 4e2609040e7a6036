"""What users may rely upon: tests/promised.txt holds every public name, and how it is called."""

from tests.support import promised


def test_every_public_name_is_promised_and_every_promised_name_is_there() -> None:
    """A new name, a lost one, or another parameter, is a decision that shows in the list.

    To promise less, begin the name with an underscore.
    """
    listed, there = promised.FILE.read_text(encoding="utf-8").splitlines(), promised.promised().splitlines()
    gone, new = sorted({*listed} - {*there}), sorted({*there} - {*listed})
    assert (gone, new) == ([], []), f"after a look at them, write the list by `{promised.COMMAND}`"
