"""The four-letter words of the in-memory server have the same lines as on the real server."""

from __future__ import annotations

import asyncio
import re

import zkwire
from zkwire.testing import RealServer, Server, VirtualClock

# Rows of `mntr` and `envi` that the real server alone has (threads, disks, quorums, Java) are left out.
WHOLE = ["ruok", "srvr", "stat", "conf", "cons", "dump", "isro", "wchs", "wchc", "wchp", "crst", "srst", "dirs", "gtmk"]


async def ask(hosts: str, word: str) -> str:
    host, _, port = hosts.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(word.encode())
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer.decode()


async def answers(hosts: str) -> dict[str, str]:
    """What a server answers with two sessions, a few nodes and watches."""
    async with zkwire.connect(hosts) as zk, zkwire.connect(hosts) as other:
        await zk.create("/words-a", b"x")
        await zk.create("/words-e", ephemeral=True)
        watches = [
            await zk.get_and_watch("/words-a"),
            await zk.get_children_and_watch("/"),
            await other.get_and_watch("/words-a"),
            await other.exists_and_watch("/words-no"),
        ]
        found = {word: await ask(hosts, word) for word in [*WHOLE, "mntr", "envi"] if word not in ("crst", "srst")}
        found["crst"] = await ask(hosts, "crst")
        found["cons after crst"] = await ask(hosts, "cons")
        found["srst"] = await ask(hosts, "srst")
        found["srvr after srst"] = await ask(hosts, "srvr")
        await zk.delete("/words-a")
    watches.clear()  # until here they are kept: a watch that is dropped is removed from the server
    return found


def shape(answer: str) -> list[str]:
    """The lines of an answer with what differs from server to server masked, sorted where the order is free."""
    answer = re.sub(r"3\.\d+\.\d+\S*, built on .*", "VERSION", answer)
    answer = re.sub(r"(?m)^(data\w*Dir)=.*", r"\1=DIR", answer)
    answer = re.sub(r"\w{3} \w{3} \d\d \d\d:\d\d:\d\d UTC \d{4}", "DATE", answer)
    # When sessions and connections end depends on the moment: whether in one tick or in two.
    answer = re.sub(r"(?m)^\d+ expire at DATE:\n", "", answer)
    answer = re.sub(r"Sets \(\d+\)", "Sets (n)", answer)
    return sorted(re.sub(r"0x[0-9a-f]+|\d+\.\d+|\d+", "N", answer).split("\n"))


async def test_the_answers_have_the_shape_and_the_counts_of_the_real_servers(zookeeper_own: RealServer) -> None:
    real = await answers(zookeeper_own.hosts)
    async with Server(tick_time=0.5) as server:
        ours = await answers(server.hosts)
    assert {word: shape(answer) for word, answer in ours.items() if word not in ("mntr", "envi")} == {
        word: shape(answer) for word, answer in real.items() if word not in ("mntr", "envi")
    }
    assert _keys(ours["mntr"], "\t") <= _keys(real["mntr"], "\t")
    assert ours["envi"].startswith("Environment:\nzookeeper.version=3.9.5")
    for name in ("znode_count", "ephemerals_count", "watch_count", "global_sessions", "num_alive_connections"):
        row = f"zk_{name}\t"
        values = [answer.partition(row)[2].partition("\n")[0] for answer in (ours["mntr"], real["mntr"])]
        assert values[0] == values[1] != "", name
    # What a probe reads out of them, number for number.
    assert ours["wchs"] == real["wchs"] == "2 connections watching 2 paths\nTotal watches:3\n"
    for pattern in ("Node count: .*", "Zxid: .*", "Connections: .*", "Mode: .*"):
        found = [re.findall(pattern, answer["srvr"]) for answer in (ours, real)]
        assert found[0] == found[1]
        assert len(found[0]) == 1


def _keys(answer: str, separator: str) -> set[str]:
    return {line.partition(separator)[0] for line in answer.splitlines()}


async def test_a_server_tells_its_port_and_when_sessions_end_by_its_clock_and_leaves_no_call_on_that() -> None:
    clock = VirtualClock(wall=1_769_999_980.0)
    clock.advance(20)  # 2026-02-02 02:40:00 UTC
    async with Server(clock=clock) as server, zkwire.connect(server.hosts, session_timeout=10):
        assert "1 expire at Mon Feb 02 02:40:12 UTC 2026:\n\t0x" in await ask(server.hosts, "dump")
        assert "zk_uptime\t0\n" in await ask(server.hosts, "mntr")
        assert f"clientPort={server.port}\n" in await ask(server.hosts, "conf")
    assert [timer for _, _, timer in clock._calls if timer.call is not None] == []
