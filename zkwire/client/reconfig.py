"""The configuration of an ensemble, which `get_config` and `reconfig` return, and the arguments of `reconfig`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

from zkwire.wire.records import Stat
from zkwire.wire.requests import ReconfigRequest

# A list of servers: one string in the server's format, a list of its entries, or the `members` of a Configuration.
Members: TypeAlias = str | Iterable[str] | Mapping[int, str]
Ids: TypeAlias = int | str | Iterable[int]


class Configuration(NamedTuple):
    """The dynamic configuration of the ensemble as bytes (empty on a single server), and the Stat of its node."""

    data: bytes
    stat: Stat

    @property
    def members(self) -> dict[int, str]:
        """The servers, by their ids: {4: "host:port:port:role;host:port"}."""
        entries = (line.partition("=") for line in self._lines() if line.startswith("server."))
        return {int(key.removeprefix("server.")): value for key, _, value in entries}

    @property
    def version(self) -> int:
        """The version of the configuration, for `reconfig(from_config=...)`; -1 on a single server."""
        for line in self._lines():
            if line.startswith("version="):
                return int(line.removeprefix("version="), 16)
        return -1

    def _lines(self) -> list[str]:
        return [line.strip() for line in self.data.decode("utf-8", "replace").splitlines()]


def reconfiguration(
    joining: Members | None, leaving: Ids | None, members: Members | None, from_config: int
) -> ReconfigRequest:
    """Return the request for these arguments of `Client.reconfig`.  Raises: TypeError, ValueError."""
    if members is not None and (joining is not None or leaving is not None):
        raise ValueError("reconfig takes either `members`, or `joining` and `leaving`, but not both")
    if members is None and joining is None and leaving is None:
        raise ValueError("reconfig needs `joining`, `leaving` or `members`")
    if isinstance(from_config, bool) or not isinstance(from_config, int):
        raise TypeError(f"from_config must be an int, not {from_config!r}")
    if not -1 <= from_config < 2**63:
        raise ValueError(f"from_config must be the version of a configuration, or -1 for any, not {from_config}")
    if isinstance(leaving, int) and not isinstance(leaving, bool):
        leaving = [leaving]
    return ReconfigRequest(
        _text("joining", joining, str), _text("leaving", leaving, int), _text("members", members, str), from_config
    )


def _text(name: str, value: object, kind: type) -> str | None:
    """Return the entries of `value`, each of the type `kind`, as one string with commas between."""
    if value is None:
        return None
    if isinstance(value, Mapping) and kind is str:
        value = [f"server.{number}={address}" for number, address in value.items()]
    if not isinstance(value, str):
        if isinstance(value, bytes | Mapping) or not isinstance(value, Iterable):
            raise TypeError(f"{name} must be a str or a list of {kind.__name__}, not {value!r}")
        entries = list(value)
        for entry in entries:
            if isinstance(entry, bool) or not isinstance(entry, kind):
                raise TypeError(f"{name} must be a str or a list of {kind.__name__}, not {value!r}")
        value = ",".join(map(str, entries))
    if not value.strip():
        raise ValueError(f"{name} is empty: leave it out")
    return value
