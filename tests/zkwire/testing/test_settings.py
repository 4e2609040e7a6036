"""Settings that no server can have are refused by a ValueError or TypeError that names them, before anything starts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from zkwire.testing import RealEnsemble, RealServer, Server, ServerProcess, authority

INF, NAN = float("inf"), float("nan")
REAL: list[Callable[..., object]] = [RealServer, RealEnsemble]
SERVERS = [*REAL, Server, ServerProcess]


@pytest.mark.parametrize("make", SERVERS)
@pytest.mark.parametrize("tick_time", [0, NAN, 1e300, 0.0005, "2", True])
def test_a_tick_that_no_server_can_have_is_refused(make: Callable[..., object], tick_time: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="tick_time"):
        make(tick_time=tick_time)


@pytest.mark.parametrize(
    ("makes", "settings"),
    [
        ([Server], {"max_session_timeout": INF}),
        ([Server], {"max_session_timeout": "60"}),
        ([Server], {"min_session_timeout": 5.0, "max_session_timeout": 4.0}),
        ([Server], {"max_buffer": 2**31}),
        ([Server], {"container_interval": 0}),
        ([Server], {"port": 65536}),
        ([Server], {"host": ""}),
        ([Server], {"super_digest": "super"}),
        (REAL, {"sasl_users": {"bob": b"x"}}),
        (REAL, {"sasl_users": {"bob": "two\nlines"}}),
        (REAL, {"properties": {"a": "two\nlines"}}),
        (REAL, {"properties": {"a=b": "c"}}),
        *(([RealEnsemble], {"size": size}) for size in (INF, "3", 0)),
        *(([RealEnsemble], {"observers": observers}) for observers in (1.5, -1)),
    ],
)
def test_settings_that_no_server_can_have(makes: list[Callable[..., object]], settings: dict[str, Any]) -> None:
    for make in makes:
        with pytest.raises((ValueError, TypeError), match="|".join(settings)) as refused:
            make(**settings)
        assert "lines" not in str(refused.value), "the password is printed"


def test_a_private_key_is_readable_by_its_owner_alone(tmp_path: Path) -> None:
    made = authority(tmp_path, "ca")
    assert made.key.stat().st_mode & 0o077 == 0
    assert made.chain.stat().st_mode & 0o077 == 0
