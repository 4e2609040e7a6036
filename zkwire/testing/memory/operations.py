"""The table of operations: for each opcode its decoder, and the function of reads.py or writes.py that carries it out.

The authentication of a connection is not in it: it is about no session.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

from zkwire.testing.memory import reads, writes
from zkwire.testing.memory.state import ServerConnection, State
from zkwire.wire import requests
from zkwire.wire.multi import MultiReadRequest, MultiRequest
from zkwire.wire.requests import Request

_Read: TypeAlias = Callable[[State, ServerConnection, Any], bytes]


class Operation(NamedTuple):
    """How an opcode is carried out.

    `name` is shown by four-letter words; `read` returns the body of the reply, `write` one change of the tree.
    """

    name: str
    request: type[Request[Any]]
    read: _Read | None = None
    write: writes.Write | None = None


OPERATIONS: Final[dict[int, Operation]] = {
    operation.request.opcode: operation
    for operation in (
        *(Operation("CREA", kind, write=writes.create) for kind in writes.CREATES),
        Operation("DELE", requests.DeleteRequest, write=writes.delete),
        Operation("SETD", requests.SetDataRequest, write=writes.set_data),
        Operation("SETA", requests.SetACLRequest, write=writes.set_acl),
        Operation("RECO", requests.ReconfigRequest, write=writes.reconfig),
        Operation("MULT", MultiRequest, writes.multi),
        Operation("CLOS", requests.CloseSessionRequest, writes.close_session),
        Operation("EXIS", requests.ExistsRequest, reads.exists),
        Operation("GETD", requests.GetDataRequest, reads.get_data),
        Operation("GETA", requests.GetACLRequest, reads.get_acl),
        Operation("GETC", requests.GetChildrenRequest, reads.get_children),
        Operation("GETC", requests.GetChildren2Request, reads.get_children),
        Operation("GETACN", requests.GetAllChildrenNumberRequest, reads.get_all_children_number),
        Operation("GETE", requests.GetEphemeralsRequest, reads.get_ephemerals),
        Operation("SYNC", requests.SyncRequest, reads.echo),
        Operation("HOMI", requests.WhoAmIRequest, reads.who_am_i),
        Operation("PING", requests.PingRequest, reads.echo),
        Operation("ADDW", requests.AddWatchRequest, reads.add_watch),
        Operation("CHKW", requests.CheckWatchesRequest, reads.find_watches),
        Operation("REMW", requests.RemoveWatchesRequest, reads.find_watches),
        Operation("SETW", requests.SetWatchesRequest, reads.set_watches),
        Operation("STW2", requests.SetWatches2Request, reads.set_watches),
        Operation("MLTR", MultiReadRequest, reads.multi_read),
    )
}
