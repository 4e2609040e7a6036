"""Checks of the settings of test servers: a setting that no server can have is refused before anything starts.

Knows nothing of servers.  Errors name the setting, and show no value that may be a password.
"""

from collections.abc import Mapping

_LONGEST = (2**31 - 1) / 1000  # seconds: servers count milliseconds in 32 bits


def check_seconds(name: str, value: object) -> None:
    """Return if `value` is a time that a server can count; raise TypeError or ValueError if not."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number of seconds, not {type(value).__name__}")
    if not value >= 0.001:  # written so that a NaN is refused too
        raise ValueError(f"{name} is {value} s; the server counts whole milliseconds, one at least")
    if value > _LONGEST:
        raise ValueError(f"{name} is {value} s; the server counts milliseconds in 32 bits, {_LONGEST} s at most")


def check_number(name: str, value: object, least: int, most: int) -> None:
    """Return if `value` is an int from `least` to `most`; raise TypeError or ValueError if not."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an int, not {type(value).__name__}")
    if not least <= value <= most:
        raise ValueError(f"{name} must be from {least} to {most}, not {value}")


def check_text(name: str, value: object, *, may_be_empty: bool = False) -> None:
    """Return if `value` is a text of one line; errors do not show the value."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str, not {type(value).__name__}")
    if not value and not may_be_empty:
        raise ValueError(f"{name} must not be empty")
    if len(value.splitlines()) > 1 or value != value.rstrip("\r\n"):
        raise ValueError(f"{name} must be one line")


def check_lines(name: str, lines: Mapping[str, str]) -> None:
    """Return if `lines` maps names to texts, each of one line."""
    if not isinstance(lines, Mapping):
        raise TypeError(f"{name} must be a mapping of str to str, not {type(lines).__name__}")
    for key, value in lines.items():
        check_text(f"a name in {name}", key)
        check_text(f"the value of {key!r} in {name}", value, may_be_empty=True)
