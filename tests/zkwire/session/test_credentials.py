"""Credentials that are shown later, and what becomes of those whose caller was cancelled."""

from typing import Any

import pytest

from zkwire.session.credentials import checked
from zkwire.wire.requests import AuthRequest


@pytest.mark.parametrize(
    ("scheme", "data", "names"),
    [("digest", "text", "str and str"), (7, b"x", "int and bytes"), (None, None, "NoneType and NoneType")],
)
def test_a_credential_of_other_types_is_refused_without_its_values(scheme: Any, data: Any, names: str) -> None:
    with pytest.raises(TypeError, match=f"a credential is a scheme and bytes, not {names}$"):
        checked(scheme, data, request_limit=1000)


@pytest.mark.parametrize(
    ("scheme", "says"), [("", "needs a scheme"), ("ann:1", "contains ':'"), ("sasl", "use connect")]
)
def test_a_scheme_that_cannot_be_right_is_refused(scheme: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        checked(scheme, b"ann:1", request_limit=1000)


def test_a_credential_is_as_large_as_a_request_may_be() -> None:
    size = len(AuthRequest(0, "digest", b"ann:1").encode()) + 8
    checked("digest", b"ann:1", request_limit=size)
    with pytest.raises(ValueError, match=r"larger than a server accepts|limit"):
        checked("digest", b"ann:1", request_limit=size - 1)
