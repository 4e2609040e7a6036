"""bench/codec.py: both contestants make the same bytes of a request and the same values of a reply."""

import dataclasses
from typing import Any

import pytest

from bench.codec import EXCHANGES, Exchange
from zkwire.wire.records import Stat


def plain(value: Any) -> Any:
    """Return a Stat as the tuple of its numbers, and anything else as it is."""
    return dataclasses.astuple(value) if isinstance(value, Stat) else value


@pytest.mark.parametrize("exchange", EXCHANGES.values(), ids=EXCHANGES)
def test_struct_by_hand_does_the_same_as_the_codec(exchange: Exchange) -> None:
    request = exchange.request()
    assert exchange.encode() == request.encode()
    decoded, end = request.reply.decode(exchange.answer.encode(), 0)
    assert end == len(exchange.answer.encode())
    fields = [plain(getattr(decoded, field.name)) for field in dataclasses.fields(decoded)]
    assert list(exchange.decode(exchange.answer.encode())) == fields
