"""Clients of kazoo that hold a lock each and do nothing, until the standard input ends; see bench/rest.py.

Run with the Python of an environment that has kazoo: `rest_kazoo SECONDS CLIENTS HOST:PORT ...`, where SECONDS is the
session timeout.  Each client knows one of the servers, in turn.
"""

import sys
from importlib import import_module
from typing import Any

from bench.peers.lines import READY

# Imported by name, because the type checker has no kazoo.
kazoo_client: Any = import_module("kazoo.client")


def main() -> None:
    """Take the locks, say so, and hold them."""
    timeout, count, hosts = float(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    clients = [kazoo_client.KazooClient(hosts[number % len(hosts)], timeout=timeout) for number in range(count)]
    for zk in clients:
        zk.start(timeout)
    for number, zk in enumerate(clients):
        zk.Lock(f"/rest/kazoo-{number}").acquire()
    print(READY, flush=True)
    sys.stdin.read()
    for zk in clients:
        zk.stop()
        zk.close()


if __name__ == "__main__":
    main()
