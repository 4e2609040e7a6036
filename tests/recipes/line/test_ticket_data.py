"""What a holder writes into the data of its ticket: read back exactly, and never confused with data of a caller."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipes.line import ticket_data
from recipes.line.ticket_data import TicketData

ANY_DATA = (
    st.binary(max_size=60)
    | st.binary().map(ticket_data.shared)
    | st.binary().map(lambda data: ticket_data.limited(1, data))
)


def test_data_that_a_holder_has_written_is_recognised() -> None:
    assert ticket_data.parse(ticket_data.shared(b"x"), 3) == TicketData(is_shared=True)
    assert ticket_data.parse(ticket_data.limited(2.5, b"x"), 3) == TicketData(limit=2.5)


@given(st.floats(0.0001, ticket_data.LONGEST_LIMIT), st.binary(max_size=20))
def test_a_limit_is_read_back_and_never_shorter(seconds: float, data: bytes) -> None:
    written = ticket_data.limited(seconds, data)
    found = ticket_data.parse(written, 1)
    assert found is not None
    assert found.limit is not None
    assert seconds <= found.limit <= seconds + 0.002
    assert not found.is_shared
    assert written.endswith(data)


@given(ANY_DATA)
def test_the_data_of_the_first_version_of_a_node_is_never_recognised(data: bytes) -> None:
    """The first version is what the caller gave; only a later one was written by the holder."""
    assert ticket_data.parse(data, 0) is None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"zkwire",
        b"zkwire shared",
        b"zkwire limit 1\n",
        b"zkwire limit 1.5\n",
        b"zkwire limit -1.000\n",
        b"zkwire limit nan\n",
        b"zkwire limit 99999999999.000\n",
        b" zkwire shared\n",
        b"host-7\nzkwire shared\n",
    ],
)
def test_other_data_is_not_recognised(data: bytes) -> None:
    assert ticket_data.parse(data, 1) is None


@given(ANY_DATA)
def test_data_that_would_be_recognised_is_refused_from_a_caller(data: bytes) -> None:
    if ticket_data.parse(data, 1) is None:
        assert ticket_data.checked_plain(data) is data
    else:
        with pytest.raises(ValueError, match="zkwire"):
            ticket_data.checked_plain(data)


@pytest.mark.parametrize(
    ("bad", "error"),
    [(bad, ValueError) for bad in (0, -1, float("nan"), float("inf"), 1e10)]
    + [(bad, TypeError) for bad in (True, "5", None)],
)
def test_a_bad_limit_is_refused(bad: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="limit"):
        ticket_data.checked_limit(bad)
