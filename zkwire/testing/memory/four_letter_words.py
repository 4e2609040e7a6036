"""The four-letter words, which tools send on a connection without a session, answered as ZooKeeper 3.9.5 does.

Renders a Machine as text and changes only the counters that `crst` and `srst` reset.  Values that have no meaning here
(threads, disks, quorums) are left out of `mntr` or shown as zero.
"""

import os
import platform
import time
from collections.abc import Callable, Iterable
from typing import Final

from zkwire.testing.memory.machine import Machine, ServerConnection
from zkwire.testing.memory.watch_manager import SEE_CHILDREN, SEE_DATA

VERSION: Final = "3.9.5-zkwire, built on 2026-02-11 20:18 UTC"


def answer(machine: Machine, connection: ServerConnection, word: bytes) -> bytes | None:
    """Return the answer to `word`, which was sent on `connection`; None when there is no such word."""
    answerer = _WORDS.get(word)
    if answerer is None:
        return None
    machine.received += 1
    connection.received += 1
    return answerer(machine).encode()


def _lines(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _pairs(values: dict[str, object], separator: str = "=") -> str:
    return _lines(f"{name}{separator}{value}" for name, value in values.items())


def _srvr(machine: Machine, clients: str = "") -> str:
    values = {
        "Latency min/avg/max": "0/0.0/0",
        "Received": machine.received,
        "Sent": machine.sent,
        "Connections": len(machine.connections),
        "Outstanding": 0,
        "Zxid": f"{machine.last_zxid:#x}",
        "Mode": "standalone",
        "Node count": len(machine.tree.nodes),
    }
    return f"Zookeeper version: {VERSION}\n{clients}{_pairs(values, ': ')}"


def _stat(machine: Machine) -> str:
    return _srvr(machine, f"Clients:\n{_lines(f'{_client(each)})' for each in machine.connections)}\n")


def _cons(machine: Machine) -> str:
    return _lines([*(_details(machine, connection) for connection in machine.connections), ""])


def _client(connection: ServerConnection) -> str:
    ready = 0 if connection.session is None else 1  # the real server shows the interest set of its selector
    counts = f"queued=0,recved={connection.received},sent={connection.sent}"
    return f" /{connection.peer}:{connection.port}[{ready}]({counts}"


def _details(machine: Machine, connection: ServerConnection) -> str:
    session = connection.session
    if session is None:
        return f"{_client(connection)})"
    opened = machine.wall_ms() - _milliseconds(machine.now - connection.opened)
    asked_last = "" if connection.last_operation == "NA" else f",lcxid={connection.last_xid % 2**64:#x}"
    return (
        f"{_client(connection)},sid={_session_of(connection)},lop={connection.last_operation},est={opened},"
        f"to={session.timeout_ms}{asked_last},lzxid={connection.last_zxid % 2**64:#x},"
        f"lresp={_milliseconds(connection.last_response)},llat=0,minlat=0,avglat=0,maxlat=0)"
    )


def _conf(machine: Machine) -> str:
    settings = machine.settings
    shortest, longest = settings.timeout_range_ms()
    return _pairs(
        {
            "clientPort": machine.port,
            "secureClientPort": -1,
            "dataDir": "(in memory)",
            "dataDirSize": 0,
            "dataLogDir": "(in memory)",
            "dataLogSize": 0,
            "tickTime": _milliseconds(settings.tick_time),
            "maxClientCnxns": 0,
            "minSessionTimeout": shortest,
            "maxSessionTimeout": longest,
            "clientPortListenBacklog": -1,
            "serverId": 0,
        }
    )


def _envi(machine: Machine) -> str:
    return "Environment:\n" + _pairs(
        {
            "zookeeper.version": VERSION,
            "host.name": platform.node(),
            "python.version": platform.python_version(),
            "os.name": platform.system(),
            "os.arch": platform.machine(),
            "os.version": platform.release(),
            "user.dir": os.getcwd(),
        }
    )


def _mntr(machine: Machine) -> str:
    values = {
        "zk_version": VERSION,
        "zk_server_state": "standalone",
        "zk_ephemerals_count": sum(node.is_ephemeral for node in machine.tree.nodes.values()),
        "zk_num_alive_connections": len(machine.connections),
        "zk_avg_latency": 0.0,
        "zk_outstanding_requests": 0,
        "zk_znode_count": len(machine.tree.nodes),
        "zk_global_sessions": len(machine.sessions.by_id),
        "zk_packets_sent": machine.sent,
        "zk_packets_received": machine.received,
        "zk_watch_count": sum(1 for kinds in (SEE_DATA, SEE_CHILDREN) for _ in machine.watches.seeing(kinds)),
        "zk_min_latency": 0,
        "zk_max_latency": 0,
        "zk_approximate_data_size": sum(len(path) + len(node.data or b"") for path, node in machine.tree.nodes.items()),
        "zk_local_sessions": 0,
        "zk_uptime": _milliseconds(machine.now - machine.start),
    }
    return _pairs(values, "\t")


def _dump(machine: Machine) -> str:
    ends: dict[int, list[int]] = {}
    for session in machine.sessions.by_id.values():
        ends.setdefault(session.ends_ms, []).append(session.id)
    lines = ["SessionTracker dump:", f"Session Sets ({len(ends)})/({len(machine.sessions.by_id)}):"]
    for end, ids in sorted(ends.items()):
        lines.append(f"{len(ids)} expire at {_date((machine.wall_ms() + end) / 1000 - machine.now)}:")
        lines += [f"\t{session_id % 2**64:#x}" for session_id in ids]
    owners = {each: paths for each in machine.sessions.by_id if (paths := machine.tree.ephemerals(each))}
    lines += ["ephemeral nodes dump:", f"Sessions with Ephemerals ({len(owners)}):"]
    for session_id, paths in owners.items():
        lines += [f"{session_id % 2**64:#x}:", *(f"\t{path}" for path in paths)]
    # The real server groups connections by the time of their next check; there are no such checks here.
    count = len(machine.connections)
    lines += ["Connections dump:", f"Connections Sets ({min(count, 1)})/({count}):"]
    if count:
        lines.append(f"{count} expire at {_date(machine.wall_ms() / 1000)}:")
    for connection in machine.connections:
        lines.append(f"\tip: /{connection.peer}:{connection.port} sessionId: {_session_of(connection)}")
    return _lines(lines)


def _wchs(machine: Machine) -> str:
    watches = list(machine.watches.seeing(SEE_DATA))
    paths, connections = {path for path, _ in watches}, {connection for _, connection in watches}
    return f"{len(connections)} connections watching {len(paths)} paths\nTotal watches:{len(watches)}\n"


def _wchc(machine: Machine) -> str:
    """Return the data watches by session."""
    return _grouped((_session_of(connection), path) for path, connection in machine.watches.seeing(SEE_DATA))


def _wchp(machine: Machine) -> str:
    """Return the data watches by path."""
    return _grouped((path, _session_of(connection)) for path, connection in machine.watches.seeing(SEE_DATA))


def _grouped(pairs: Iterable[tuple[str, str]]) -> str:
    groups: dict[str, list[str]] = {}
    for first, second in pairs:
        groups.setdefault(first, []).append(f"\t{second}")
    return _lines([*(line for first, lines in groups.items() for line in (first, *lines)), ""])


def _crst(machine: Machine) -> str:
    for connection in machine.connections:
        connection.received = connection.sent = 0
        connection.last_operation, connection.last_zxid, connection.last_response = "NA", -1, 0.0
    return "Connection stats reset.\n"


def _srst(machine: Machine) -> str:
    machine.received = machine.sent = 0
    return "Server stats reset.\n"


def _session_of(connection: ServerConnection) -> str:
    return f"{0 if connection.session is None else connection.session.id % 2**64:#x}"


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


def _date(wall: float) -> str:
    """Return a time as Java prints it, in English on every machine."""
    weekday, month, day, clock, year = time.asctime(time.gmtime(wall)).split()
    return f"{weekday} {month} {day:0>2} {clock} UTC {year}"


_WORDS: Final[dict[bytes, Callable[[Machine], str]]] = {
    b"ruok": lambda machine: "imok",
    b"isro": lambda machine: "rw",
    b"gtmk": lambda machine: "306",
    b"dirs": lambda machine: "datadir_size: 0\nlogdir_size: 0\n",
    **{
        answerer.__name__.removeprefix("_").encode(): answerer
        for answerer in (_srvr, _stat, _mntr, _conf, _cons, _dump, _envi, _wchs, _wchc, _wchp, _crst, _srst)
    },
}
