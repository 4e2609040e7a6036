"""What a holder writes into the data of its ticket: read back exactly, and believed only with a proof."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipes.line import ticket_data
from recipes.line.ticket_data import HashChain, TicketData

PROOFS = HashChain("a secret", 5)
NAME = f"_c_{PROOFS.id}-lock-0000000001"


def proof(version: int) -> str:
    """Return the proof for a version of the data of the ticket NAME."""
    found = PROOFS.link(version)
    assert found is not None
    return found


@given(st.floats(0.0001, ticket_data.LONGEST_LIMIT), st.binary(max_size=20))
def test_a_limit_is_read_back_and_never_shorter(seconds: float, data: bytes) -> None:
    written = ticket_data.limited(seconds, proof(1), data)
    found = ticket_data.parse(NAME, written, 1)
    assert found is not None
    assert found.limit is not None
    assert seconds <= found.limit <= seconds + 0.002
    assert written.endswith(data)


@pytest.mark.parametrize("version", [0, 1, 3, 4, 5, 6, 10**6, 2**31 - 1])
def test_data_is_believed_only_in_the_version_that_its_proof_is_for(version: int) -> None:
    """Shown again, a proof proves nothing: by then any client may have read it."""
    assert ticket_data.parse(NAME, ticket_data.shared(proof(2), b""), version) is None
    assert ticket_data.parse(NAME, ticket_data.limited(1, proof(2), b""), version) is None


def test_the_last_proof_of_the_longest_chain_is_believed() -> None:
    most = HashChain("a secret", ticket_data.MOST_LINKS)
    assert ticket_data.lets_readers_in(f"_c_{most.id}-", ticket_data.shared(most.link(300) or "", b""), 300)


@pytest.mark.parametrize(
    "name", [f"_c_{HashChain('another secret', 5).id}-lock-0000000001", f"{PROOFS.id}__lock__0000000001", ""]
)
def test_data_is_believed_only_below_the_name_that_its_proof_is_for(name: str) -> None:
    assert ticket_data.parse(name, ticket_data.shared(proof(1), b""), 1) is None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"zkwire",
        b"zkwire shared\n",
        b"zkwire shared %s",
        b"zkwire shared %s0\n",
        b"zkwire shared 0%s\n",
        b"zkwire limit %s\n",
        b"zkwire limit 1.000\n",
        b"zkwire limit 1 %s\n",
        b"zkwire limit 1.5 %s\n",
        b"zkwire limit -1.000 %s\n",
        b"zkwire limit nan %s\n",
        b"zkwire limit 99999999999.000 %s\n",
        b" zkwire shared %s\n",
        b"host-7\nzkwire shared %s\n",
    ],
)
def test_other_data_is_not_recognised(data: bytes) -> None:
    assert ticket_data.parse(NAME, data.replace(b"%s", proof(1).encode()), 1) is None


@pytest.mark.parametrize(
    ("bad", "error"),
    [(bad, ValueError) for bad in (0, -1, float("nan"), float("inf"), 1e10, 1e9 + 0.1)]
    + [(bad, TypeError) for bad in (True, "5", None)],
)
def test_a_bad_limit_is_refused(bad: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="limit"):
        ticket_data.checked_limit(bad)


@pytest.mark.parametrize("limit", [0.001, 1, 10**9, 1e9])
def test_a_limit_is_a_number_of_seconds_up_to_some_thirty_years(limit: float) -> None:
    checked = ticket_data.checked_limit(limit)
    assert checked == limit
    assert isinstance(checked, float)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.0001, "0.001"),
        (0.001, "0.001"),
        (0.0011, "0.002"),
        (1, "1.000"),
        (59.9999, "60.000"),
        (1e9, "1000000000.000"),
    ],
)
def test_clients_of_all_versions_of_this_package_write_the_same(seconds: float, shown: str) -> None:
    """They wait in one line, and believe each other."""
    assert PROOFS.id == "022956e9-e772-4f8f-9081-c2f62358ad4f"
    assert ticket_data.limited(seconds, proof(1), b"x\ny") == f"zkwire limit {shown} {proof(1)}\nx\ny".encode()
    assert ticket_data.shared(proof(1), b"x\ny") == f"zkwire shared {proof(1)}\nx\ny".encode()
    assert ticket_data.parse(NAME, f"zkwire limit {shown} {proof(1)}\n".encode(), 1) == TicketData(float(shown))
    assert ticket_data.parse(NAME, f"zkwire shared {proof(1)}\n".encode(), 1) == TicketData(None)


def test_the_data_of_the_caller_is_what_is_left_without_the_line() -> None:
    for data in (b"", b"host-7", b"two\nlines\n", b"zkwire shared\n"):
        for written in (ticket_data.shared(proof(2), data), ticket_data.limited(5, proof(2), data)):
            assert ticket_data.without_line(NAME, written, 2) == data
            assert ticket_data.without_line(NAME, written, 1) == written  # not proven to be the client's
        assert ticket_data.without_line(NAME, data, 2) == data
