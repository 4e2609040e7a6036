"""A server that runs already, of any kind: `make conformance ADDRESS=host:port`."""

from dataclasses import dataclass

import pytest

import zkwire
from tests.support.java import needs_java

LACKS = "lacks"  # the property, in the report, of a test for something that came with a later version


@dataclass(frozen=True)
class Server:
    """The part of a RealServer that tests use which leave it running."""

    hosts: str
    version: str = "unknown"

    async def four_letter_word(self, word: str) -> str:
        return await zkwire.four_letter_word(self.hosts, word)


def choose(config: pytest.Config, items: list[pytest.Item], address: str) -> None:
    """Leave the tests in `items` that the server at `address` can pass; print how many need one of their own."""
    ours = [item for item in items if needs_java(item)]
    kept = [item for item in ours if _uses_the_server(item)]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(kept)])
    items[:] = kept
    print(f"{address}: {len(ours) - len(kept)} tests are left out, because they start or stop a server")
    for item in kept:
        item.user_properties += [(LACKS, f"{each.args[1]} ({each.args[0]})") for each in item.iter_markers("since")]


def _uses_the_server(item: pytest.Item) -> bool:
    assert isinstance(item, pytest.Function)
    values = item.callspec.params.values() if hasattr(item, "callspec") else ()
    return "zookeeper_own" not in item.fixturenames and "zookeeper" in {*item.fixturenames, *map(str, values)}
