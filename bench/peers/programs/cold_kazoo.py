"""The same program with kazoo: `cold_kazoo.py HOST:PORT`; see bench/coldstart.py."""

import sys

from kazoo.client import KazooClient  # type: ignore[import-not-found]  # the type checker has no kazoo

zk = KazooClient(sys.argv[1])
zk.start()
zk.ensure_path("/cold")
for _ in range(2):
    lock = zk.Lock("/cold/lock")
    lock.acquire()
    lock.release()
zk.stop()
zk.close()
