"""Settings that no server can have are refused by a ValueError or TypeError that names them, before anything starts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from zkwire.testing import RealEnsemble, RealServer, Server, ServerProcess, authority

INF, NAN = float("inf"), float("nan")
SERVERS: list[Callable[..., object]] = [Server, RealServer, RealEnsemble, ServerProcess]


@pytest.mark.parametrize("make", SERVERS)
@pytest.mark.parametrize("tick_time", [0, NAN, 1e300, 0.0005, "2", True])
def test_a_tick_that_no_server_can_have_is_refused(make: Callable[..., object], tick_time: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="tick_time"):
        make(tick_time=tick_time)


@pytest.mark.parametrize(
    "settings",
    [
        {"max_session_timeout": INF},
        {"max_session_timeout": "60"},
        {"min_session_timeout": 5.0, "max_session_timeout": 4.0},
        {"max_buffer": 2**31},
        {"container_interval": 0},
        {"port": 65536},
        {"host": ""},
        {"super_digest": "super"},
    ],
    ids=str,
)
def test_settings_of_the_memory_server(settings: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError), match="|".join(settings)):
        Server(**settings)


@pytest.mark.parametrize("make", [RealServer, RealEnsemble])
@pytest.mark.parametrize(
    "settings",
    [
        {"sasl_users": {"bob": b"x"}},
        {"sasl_users": {"bob": "two\nlines"}},
        {"properties": {"a": "two\nlines"}},
        {"properties": {"a=b": "c"}},
    ],
    ids=str,
)
def test_settings_of_real_servers(make: Callable[..., object], settings: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError), match="|".join(settings)) as refused:
        make(**settings)
    assert "lines" not in str(refused.value), "the password is printed"


@pytest.mark.parametrize("settings", [{"size": INF}, {"size": "3"}, {"size": 0}, {"observers": 1.5}, {"observers": -1}])
def test_sizes_of_an_ensemble(settings: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError), match="|".join(settings)):
        RealEnsemble(**settings)


def test_a_private_key_is_readable_by_its_owner_alone(tmp_path: Path) -> None:
    made = authority(tmp_path, "ca")
    assert made.key.stat().st_mode & 0o077 == 0
    assert made.chain.stat().st_mode & 0o077 == 0
