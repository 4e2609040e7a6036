"""Inputs that have broken a promise once: the target, and the input.

Each run of the tests plays them again.  `python -m tests.fuzz` prints a new one in this form.
"""

from typing import Final

KEPT: Final[list[tuple[str, bytes]]] = [
    # Python refuses to make an int of more than 4300 digits: a ValueError that is documented nowhere.
    ("config", b"server.=;" + b"9" * 4301),
    ("four-letter words", b"mntr\t" + b"9" * 4301),
    ("names", b"01234567-0123-0123-0123-0123456789ab-of-" + b"1" * 4301 + b"-0000000001"),
    # An address that no connect string can name.
    ("config", b"server.=;0/:1"),
]
