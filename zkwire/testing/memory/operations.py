"""The table of operations: for each opcode its decoder, and the function of reads.py or writes.py that carries it out.

Transactions, the end of a session and the authentication of a connection are not in it: they are more than a function
of the tree.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

from zkwire.testing.memory import reads, writes
from zkwire.testing.memory.state import Connection, State
from zkwire.wire import multi, requests
from zkwire.wire.requests import Request

_Read: TypeAlias = Callable[[State, Connection, Any], bytes]
_Write: TypeAlias = Callable[[State, Connection, Any, int, int], writes.Change]


class Operation(NamedTuple):
    """How an opcode is carried out; for a write also how the body of the reply is made from the change."""

    name: str
    request: type[Request[Any]]
    read: _Read | None = None
    write: _Write | None = None
    body: Callable[[writes.Change], bytes] = writes.nothing_of


_WRITES: Final[dict[type[Request[Any]], tuple[str, _Write, Callable[[writes.Change], bytes]]]] = {
    requests.CreateRequest: ("CREA", writes.create, writes.path_of),
    requests.Create2Request: ("CREA", writes.create, writes.path_and_stat_of),
    requests.CreateContainerRequest: ("CREA", writes.create, writes.path_and_stat_of),
    requests.CreateTTLRequest: ("CREA", writes.create, writes.path_and_stat_of),
    requests.DeleteRequest: ("DELE", writes.delete, writes.nothing_of),
    requests.SetDataRequest: ("SETD", writes.set_data, writes.stat_of),
    requests.SetACLRequest: ("SETA", writes.set_acl, writes.stat_of),
    requests.ReconfigRequest: ("RECO", writes.reconfig, writes.nothing_of),
}
_READS: Final[dict[type[Request[Any]], tuple[str, _Read]]] = {
    requests.ExistsRequest: ("EXIS", reads.exists),
    requests.GetDataRequest: ("GETD", reads.get_data),
    requests.GetACLRequest: ("GETA", reads.get_acl),
    requests.GetChildrenRequest: ("GETC", reads.get_children),
    requests.GetChildren2Request: ("GETC", reads.get_children2),
    requests.GetAllChildrenNumberRequest: ("GETACN", reads.get_all_children_number),
    requests.GetEphemeralsRequest: ("GETE", reads.get_ephemerals),
    requests.SyncRequest: ("SYNC", reads.sync),
    requests.WhoAmIRequest: ("HOMI", reads.who_am_i),
    requests.PingRequest: ("PING", reads.nothing),
    requests.AddWatchRequest: ("ADDW", reads.add_watch),
    requests.CheckWatchesRequest: ("CHKW", reads.check_watches),
    requests.RemoveWatchesRequest: ("REMW", reads.remove_watches),
    requests.SetWatchesRequest: ("SETW", reads.set_watches),
    requests.SetWatches2Request: ("STW2", reads.set_watches),
    multi.MultiReadRequest: ("MLTR", reads.multi_read),
}
OPERATIONS: Final[dict[int, Operation]] = {
    **{cls.opcode: Operation(name, cls, read) for cls, (name, read) in _READS.items()},
    **{cls.opcode: Operation(name, cls, None, write, body) for cls, (name, write, body) in _WRITES.items()},
}
