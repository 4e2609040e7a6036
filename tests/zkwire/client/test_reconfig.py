"""The configuration of an ensemble: its text, and how `reconfig` converts its arguments."""

import re
from typing import Any

import pytest

from zkwire.client.admin import Configuration, reconfiguration
from zkwire.wire.records import Stat
from zkwire.wire.requests import ReconfigRequest

STAT = Stat(*range(11))
ONE = "zk1:2888:3888:participant;0.0.0.0:2181"
TWO = "zk2:2888:3888:observer;0.0.0.0:2181"
DATA = f"server.1={ONE}\nserver.12={TWO}\nversion=100000003\n".encode()


def test_a_configuration_is_its_data_and_stat() -> None:
    data, stat = Configuration(DATA, STAT)
    assert (data, stat) == (DATA, STAT)


def test_a_configuration_has_members_and_a_version() -> None:
    config = Configuration(DATA, STAT)
    assert config.members == {1: ONE, 12: TWO}
    assert config.version == 0x100000003


@pytest.mark.parametrize("data", [b"", b"\n", b"group.1=1:2\nweight.1=1\n", b"\xff\xfe"])
def test_a_configuration_without_members(data: bytes) -> None:
    config = Configuration(data, STAT)
    assert (config.members, config.version) == ({}, -1)


@pytest.mark.parametrize(
    ("said", "request_"),
    [
        ({"joining": f"server.1={ONE}"}, ReconfigRequest(f"server.1={ONE}", None, None, -1)),
        ({"joining": ["a", "b"]}, ReconfigRequest("a,b", None, None, -1)),
        ({"joining": {1: ONE, 12: TWO}}, ReconfigRequest(f"server.1={ONE},server.12={TWO}", None, None, -1)),
        ({"leaving": 3}, ReconfigRequest(None, "3", None, -1)),
        ({"leaving": "3,4"}, ReconfigRequest(None, "3,4", None, -1)),
        ({"leaving": (3, 4)}, ReconfigRequest(None, "3,4", None, -1)),
        ({"joining": "a", "leaving": [1]}, ReconfigRequest("a", "1", None, -1)),
        ({"members": {1: ONE}, "from_config": 5}, ReconfigRequest(None, None, f"server.1={ONE}", 5)),
        ({"members": iter("ab"), "from_config": 0}, ReconfigRequest(None, None, "a,b", 0)),
    ],
    ids=lambda value: "",
)
def test_arguments_are_converted_to_the_servers_format(said: dict[str, Any], request_: ReconfigRequest) -> None:
    said = {"joining": None, "leaving": None, "members": None, "from_config": -1} | said
    assert reconfiguration(**said) == request_


def test_the_members_of_a_configuration_can_be_passed_to_reconfig() -> None:
    request = reconfiguration(None, None, Configuration(DATA, STAT).members, 7)
    assert Configuration((request.members or "").replace(",", "\n").encode(), STAT).members == {1: ONE, 12: TWO}


@pytest.mark.parametrize("version", [-1, 0, 2**63 - 1])
def test_every_version_that_a_server_can_have_is_accepted(version: int) -> None:
    assert reconfiguration("a", None, None, version).config_id == version


EITHER = "reconfig takes either `members`, or `joining` and `leaving`, but not both"
LIST = "must be a str or a list of"


@pytest.mark.parametrize(
    ("said", "error", "message"),
    [
        ({}, ValueError, "reconfig needs `joining`, `leaving` or `members`"),
        ({"joining": "a", "members": "b"}, ValueError, EITHER),
        ({"leaving": 1, "members": "b"}, ValueError, EITHER),
        ({"joining": "a", "leaving": 1, "members": "b"}, ValueError, EITHER),
        ({"joining": ""}, ValueError, "joining is empty: leave it out"),
        ({"joining": []}, ValueError, "joining is empty: leave it out"),
        ({"members": " "}, ValueError, "members is empty: leave it out"),
        ({"members": {}}, ValueError, "members is empty: leave it out"),
        ({"leaving": ()}, ValueError, "leaving is empty: leave it out"),
        ({"joining": 5}, TypeError, f"joining {LIST} str, not 5"),
        ({"joining": b"server.1=a"}, TypeError, f"joining {LIST} str, not b'server.1=a'"),
        ({"joining": [1]}, TypeError, f"joining {LIST} str, not [1]"),
        ({"members": ["a", None]}, TypeError, f"members {LIST} str, not ['a', None]"),
        ({"leaving": ["one"]}, TypeError, f"leaving {LIST} int, not ['one']"),
        ({"leaving": {1: "a"}}, TypeError, f"leaving {LIST} int, not {{1: 'a'}}"),
        ({"leaving": b"\x01"}, TypeError, f"leaving {LIST} int, not b'\\x01'"),
        ({"leaving": [1, True]}, TypeError, f"leaving {LIST} int, not [1, True]"),
        ({"leaving": True}, TypeError, f"leaving {LIST} int, not True"),
        ({"leaving": 1.5}, TypeError, f"leaving {LIST} int, not 1.5"),
        ({"leaving": 1, "from_config": "1"}, TypeError, "from_config must be an int, not '1'"),
        ({"leaving": 1, "from_config": None}, TypeError, "from_config must be an int, not None"),
        ({"leaving": 1, "from_config": 1.0}, TypeError, "from_config must be an int, not 1.0"),
        ({"leaving": 1, "from_config": True}, TypeError, "from_config must be an int, not True"),
    ],
    ids=str,
)
def test_bad_arguments_are_refused_by_their_names(said: dict[str, Any], error: type[Exception], message: str) -> None:
    said = {"joining": None, "leaving": None, "members": None, "from_config": -1} | said
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        reconfiguration(**said)


@pytest.mark.parametrize("version", [-2, 2**63])
def test_a_version_that_no_server_can_have_is_refused(version: int) -> None:
    with pytest.raises(ValueError, match="from_config must be the version of a configuration, or -1 for any"):
        reconfiguration("a", None, None, version)
