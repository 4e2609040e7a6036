"""How many examples the tests of hypothesis try: `make quick` tries a quarter of them."""

from typing import Final

from hypothesis import settings

QUICK: Final = "quick"
FULL: Final = "zkwire"
_USUAL: Final = 100


def register() -> None:
    """Make the two profiles known to hypothesis, and load that of the whole suite."""
    # No deadline: the time of an example depends more on the load of the machine than on the code.
    settings.register_profile(FULL, deadline=None, max_examples=_USUAL)
    settings.register_profile(QUICK, deadline=None, max_examples=_USUAL // 4)
    settings.load_profile(FULL)


def examples(count: int) -> settings:
    """Return settings for `count` examples in the whole suite, and fewer by the profile that is loaded."""
    return settings(max_examples=max(1, count * settings().max_examples // _USUAL))
