"""reconfig: servers leave and join, named in every form, and each refusal has its error."""

import pytest

import zkwire
from zkwire.testing import EnsembleServer, RealEnsemble


@pytest.mark.limit(120)
async def test_reconfig_removes_adds_and_replaces_members(reconfigurable: RealEnsemble) -> None:
    leader = await reconfigurable.leader()
    other = next(server for server in reconfigurable.servers if server is not leader)
    # Connections to a server that leaves, or stops leading, are lost.
    async with zkwire.connect(leader.hosts) as zk:
        before, watch = await zk.get_config_and_watch()
        assert before == await zk.get_config()
        assert sorted(before.members) == [1, 2, 3]
        left = await zk.reconfig(leaving=other.number, from_config=before.version)
        assert left.members == {n: spec for n, spec in before.members.items() if n != other.number}
        assert left == await zk.get_config()
        assert (await watch).type is zkwire.WatchEventType.CHANGED
        assert left.version > before.version
        with pytest.raises(zkwire.BadVersionError):
            await zk.reconfig(leaving=leader.number, from_config=before.version)
        joined = await zk.reconfig(joining={other.number: before.members[other.number]})
        assert joined.members == before.members
        whole = await zk.reconfig(members=joined.members, from_config=joined.version)
        assert whole.members == before.members
        with pytest.raises(zkwire.BadArgumentsError, match=r"server\.4=host:port:port:role;port"):
            await zk.reconfig(joining="nonsense")
        strangers = [f"server.{n}=127.0.0.1:{n}1:{n}2:participant;{n}3" for n in (7, 8, 9)]
        with pytest.raises(zkwire.NewConfigNoQuorumError):
            await zk.reconfig(joining=strangers)
        assert await zk.get_config() == whole


async def test_reconfig_without_permission_is_refused(secure: EnsembleServer) -> None:
    async with zkwire.connect(secure.hosts) as zk:
        with pytest.raises(zkwire.NoAuthError):
            await zk.reconfig(leaving=3)
