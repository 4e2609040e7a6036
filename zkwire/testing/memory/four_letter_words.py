"""The four-letter words, which tools send on a connection without a session, answered as ZooKeeper 3.9.5 does.

Renders a Machine as text and changes only the counters that `crst` and `srst` reset.  Values that have no meaning here
(threads, disks, quorums) are left out of `mntr` or shown as zero.
"""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from zkwire.testing.memory.machine import Connection, Machine
from zkwire.testing.memory.watch_manager import WatchTable

VERSION: Final = "3.9.5-zkwire, built on 2026-02-11 20:18 UTC"


class _Asked(NamedTuple):
    """The input of an answer; `now` is of the server's clock, `wall` in seconds since 1970."""

    machine: Machine
    now: float
    wall: float
    port: int


def answer(machine: Machine, connection: Connection, word: bytes, now: float, wall: float, port: int) -> bytes | None:
    """Return the answer to `word`, None when there is no such word.

    Arguments: `connection`, on which it was asked; `now`, the server's time, and `wall`, seconds since 1970 at that
    moment; `port`, that of the server.
    """
    answerer = _WORDS.get(word)
    if answerer is None:
        return None
    machine.received += 1
    connection.received += 1
    return answerer(_Asked(machine, now, wall, port)).encode()


def _lines(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _ruok(asked: _Asked) -> str:
    return "imok"


def _isro(asked: _Asked) -> str:
    return "rw"


def _gtmk(asked: _Asked) -> str:
    return "306"


def _summary(machine: Machine) -> str:
    return _lines(
        [
            "Latency min/avg/max: 0/0.0/0",
            f"Received: {machine.received}",
            f"Sent: {machine.sent}",
            f"Connections: {len(machine.connections)}",
            "Outstanding: 0",
            f"Zxid: {machine.last_zxid:#x}",
            "Mode: standalone",
            f"Node count: {machine.tree.count}",
        ]
    )


def _srvr(asked: _Asked) -> str:
    return f"Zookeeper version: {VERSION}\n{_summary(asked.machine)}"


def _stat(asked: _Asked) -> str:
    clients = [f"{_client(connection)})" for connection in asked.machine.connections]
    return f"Zookeeper version: {VERSION}\nClients:\n{_lines(clients)}\n{_summary(asked.machine)}"


def _cons(asked: _Asked) -> str:
    return _lines([*(_details(asked, connection) for connection in asked.machine.connections), ""])


def _client(connection: Connection) -> str:
    ready = 0 if connection.session is None else 1  # the real server shows the interest set of its selector
    counts = f"queued=0,recved={connection.received},sent={connection.sent}"
    return f" /{connection.peer}:{connection.port}[{ready}]({counts}"


def _details(asked: _Asked, connection: Connection) -> str:
    session = connection.session
    if session is None:
        return f"{_client(connection)})"
    opened = _milliseconds(asked.wall - (asked.now - connection.opened))
    asked_last = "" if connection.last_operation == "NA" else f",lcxid={connection.last_xid % 2**64:#x}"
    return (
        f"{_client(connection)},sid={session.id % 2**64:#x},lop={connection.last_operation},est={opened},"
        f"to={session.timeout_ms}{asked_last},lzxid={connection.last_zxid % 2**64:#x},"
        f"lresp={_milliseconds(connection.last_response)},llat=0,minlat=0,avglat=0,maxlat=0)"
    )


def _conf(asked: _Asked) -> str:
    settings = asked.machine.settings
    shortest, longest = settings.timeout_range_ms()
    return _lines(
        [
            f"clientPort={asked.port}",
            "secureClientPort=-1",
            "dataDir=(in memory)",
            "dataDirSize=0",
            "dataLogDir=(in memory)",
            "dataLogSize=0",
            f"tickTime={_milliseconds(settings.tick_time)}",
            "maxClientCnxns=0",
            f"minSessionTimeout={shortest}",
            f"maxSessionTimeout={longest}",
            "clientPortListenBacklog=-1",
            "serverId=0",
        ]
    )


def _dirs(asked: _Asked) -> str:
    return "datadir_size: 0\nlogdir_size: 0\n"


def _envi(asked: _Asked) -> str:
    return _lines(
        [
            "Environment:",
            f"zookeeper.version={VERSION}",
            f"host.name={platform.node()}",
            f"python.version={platform.python_version()}",
            f"python.implementation={platform.python_implementation()}",
            f"os.name={platform.system()}",
            f"os.arch={platform.machine()}",
            f"os.version={platform.release()}",
            f"user.dir={os.getcwd()}",
            f"python.executable={sys.executable}",
        ]
    )


def _mntr(asked: _Asked) -> str:
    machine = asked.machine
    values: dict[str, object] = {
        "version": VERSION,
        "server_state": "standalone",
        "ephemerals_count": sum(map(len, machine.tree.ephemerals.values())),
        "num_alive_connections": len(machine.connections),
        "avg_latency": 0.0,
        "outstanding_requests": 0,
        "znode_count": machine.tree.count,
        "global_sessions": len(machine.sessions),
        "packets_sent": machine.sent,
        "packets_received": machine.received,
        "watch_count": _watch_count(machine.watches.data) + _watch_count(machine.watches.child),
        "min_latency": 0,
        "max_latency": 0,
        "approximate_data_size": machine.tree.data_size,
        "local_sessions": 0,
        "uptime": _milliseconds(asked.now - machine.start),
    }
    return _lines(f"zk_{name}\t{value}" for name, value in values.items())


def _dump(asked: _Asked) -> str:
    machine = asked.machine
    ends: dict[float, list[int]] = {}
    for session in machine.sessions.by_id.values():
        ends.setdefault(machine.sessions.deadline(session), []).append(session.id)
    lines = ["SessionTracker dump:", f"Session Sets ({len(ends)})/({len(machine.sessions)}):"]
    for end, ids in sorted(ends.items()):
        lines.append(f"{len(ids)} expire at {_date(asked.wall + end - asked.now)}:")
        lines += [f"\t{session_id % 2**64:#x}" for session_id in ids]
    owners = machine.tree.ephemerals
    lines += ["ephemeral nodes dump:", f"Sessions with Ephemerals ({len(owners)}):"]
    for session_id, paths in owners.items():
        lines += [f"{session_id % 2**64:#x}:", *(f"\t{path}" for path in paths)]
    # The real server groups connections by the time of their next check; there are no such checks here.
    count = len(machine.connections)
    lines += ["Connections dump:", f"Connections Sets ({min(count, 1)})/({count}):"]
    if count:
        lines.append(f"{count} expire at {_date(asked.wall)}:")
    for connection in machine.connections:
        session_id = 0 if connection.session is None else connection.session.id
        lines.append(f"\tip: /{connection.peer}:{connection.port} sessionId: {session_id % 2**64:#x}")
    return _lines(lines)


def _wchs(asked: _Asked) -> str:
    data = asked.machine.watches.data
    return (
        f"{len(data.by_watcher)} connections watching {len(data.by_path)} paths\nTotal watches:{_watch_count(data)}\n"
    )


def _wchc(asked: _Asked) -> str:
    """Return the data watches by session."""
    lines: list[str] = []
    for connection, paths in asked.machine.watches.data.by_watcher.items():
        lines += [_session_of(connection), *(f"\t{path}" for path in paths)]
    return _lines([*lines, ""])


def _wchp(asked: _Asked) -> str:
    """Return the data watches by path."""
    lines: list[str] = []
    for path, watchers in asked.machine.watches.data.by_path.items():
        lines += [path, *(f"\t{_session_of(connection)}" for connection in watchers)]
    return _lines([*lines, ""])


def _crst(asked: _Asked) -> str:
    for connection in asked.machine.connections:
        connection.received = connection.sent = 0
        connection.last_operation, connection.last_zxid, connection.last_response = "NA", -1, 0.0
    return "Connection stats reset.\n"


def _srst(asked: _Asked) -> str:
    asked.machine.received = asked.machine.sent = 0
    return "Server stats reset.\n"


def _session_of(connection: Connection) -> str:
    return f"{0 if connection.session is None else connection.session.id % 2**64:#x}"


def _watch_count(table: WatchTable[Connection]) -> int:
    return sum(map(len, table.by_path.values()))


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


def _date(wall: float) -> str:
    """Return a time as Java prints it, in English on every machine."""
    at = time.gmtime(wall)
    day, month = _DAYS[at.tm_wday], _MONTHS[at.tm_mon - 1]
    return f"{day} {month} {at.tm_mday:02} {time.strftime('%H:%M:%S', at)} UTC {at.tm_year}"


_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")

_WORDS: Final[dict[bytes, Callable[[_Asked], str]]] = {
    b"ruok": _ruok,
    b"srvr": _srvr,
    b"stat": _stat,
    b"mntr": _mntr,
    b"conf": _conf,
    b"cons": _cons,
    b"dump": _dump,
    b"envi": _envi,
    b"isro": _isro,
    b"wchs": _wchs,
    b"wchc": _wchc,
    b"wchp": _wchp,
    b"crst": _crst,
    b"srst": _srst,
    b"dirs": _dirs,
    b"gtmk": _gtmk,
}
