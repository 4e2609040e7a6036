"""Four-letter words, answered by real servers and by the one in memory."""

from typing import Any

import pytest

import zkwire
from tests.support.client import Server


async def test_the_answer_to_mntr_is_a_dict_with_numbers(server: Server, path: str) -> None:
    async with zkwire.connect(server.hosts) as zk:
        await zk.create(path, ephemeral=True)
        metrics = await zkwire.four_letter_word(server.hosts, "mntr")
    assert metrics["zk_server_state"] == "standalone"
    assert isinstance(metrics["zk_znode_count"], int)
    assert metrics["zk_znode_count"] >= 5
    assert metrics["zk_ephemerals_count"] >= 1  # type: ignore[operator]
    version = metrics["zk_version"]
    assert isinstance(version, str)
    assert version.startswith("3.")


async def test_the_answers_to_conf_and_envi_are_dicts_and_those_to_other_words_text(server: Server) -> None:
    configuration = await zkwire.four_letter_word(server.hosts, "conf")
    assert configuration["tickTime"] == 500
    assert configuration["clientPort"] == int(server.hosts.rpartition(":")[2])
    environment = await zkwire.four_letter_word(server.hosts, "envi")
    assert environment["zookeeper.version"].startswith("3.")
    assert all(isinstance(value, str) for value in environment.values())
    assert await zkwire.four_letter_word(server.hosts, "ruok") == "imok"
    assert await zkwire.four_letter_word(server.hosts, "isro") == "rw"
    assert "\nMode: standalone\n" in await zkwire.four_letter_word(server.hosts, "srvr")


async def test_an_unknown_word_is_refused_by_the_server(server: Server) -> None:
    with pytest.raises(zkwire.UnimplementedError, match=r"abcd.*closed the connection without an answer") as caught:
        await zkwire.four_letter_word(server.hosts, "abcd")
    assert caught.value.server == server.hosts


@pytest.mark.parametrize("word", ["", "mnt", "mntrs", "MNTR", "ruok\n", "stmk", b"ruok"])
async def test_a_bad_word_is_refused_at_once(server: Server, word: Any) -> None:
    with pytest.raises(TypeError if word == b"ruok" else ValueError, match=r"word|stmk|str, not bytes"):
        await zkwire.four_letter_word(server.hosts, word)


@pytest.mark.parametrize("host", ["zk1:1,zk2:2", "zk1:1/app", "", "zk1:port"])
async def test_a_host_that_is_not_one_server_is_refused_at_once(host: str) -> None:
    with pytest.raises(ValueError, match=r"not one server|bad connect string"):
        await zkwire.four_letter_word(host, "ruok")
