"""Kerberos: a client of servers that use SASL with GSSAPI, with the package gssapi (pip install gssapi).

    KRB5_CLIENT_KTNAME=/etc/shop.keytab python kerberos.py zk1.example.com:2181,zk2.example.com:2181

The keytab is best: the library gets tickets with it, and new ones in time.  Without one it takes the tickets that
`kinit` has left, and somebody has to renew those.  The connect string must have the names that the servers' principals
have: zookeeper/zk1.example.com@EXAMPLE.COM.  The program prints who it is, and how its session fares.
"""

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor

import gssapi

import zkwire

# What krb5.h calls KRB5_KDC_UNREACH, KRB5_REALM_CANT_RESOLVE and KRB5KDC_ERR_SVC_UNAVAILABLE: these pass.
AWAY = {code % 2**32 for code in (-1765328228, -1765328164, -1765328355)}
NO_LAYER = 1  # SASL authenticates only: TLS protects what follows


class Kerberos:
    """The mechanism GSSAPI (RFC 4752), for zkwire.connect(sasl=Kerberos()).

    A call waits for a KDC, so it runs in a thread.  There is one, which has one call at a time: a KDC that hangs for a
    minute costs no more, and the loop goes on.
    """

    def __init__(self, service: str = "zookeeper") -> None:
        self._service = service
        self._thread = ThreadPoolExecutor(1, "kerberos")
        self._context: gssapi.SecurityContext | None = None
        self._is_answered = False

    async def start(self, host: str) -> bytes:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._start, host)

    async def step(self, token: bytes) -> bytes | None:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._step, token)

    def _start(self, host: str) -> bytes:
        name = gssapi.Name(f"{self._service}@{host}", gssapi.NameType.hostbased_service)
        flags = gssapi.RequirementFlag.mutual_authentication | gssapi.RequirementFlag.integrity
        try:
            self._context = gssapi.SecurityContext(name=name, flags=flags, usage="initiate")
            self._is_answered = False
            return self._context.step() or b""
        except gssapi.raw.GSSError as error:
            if error.min_code % 2**32 in AWAY:
                raise ConnectionError(str(error)) from error  # the client tries again
            raise  # a wrong credential, for example: the client ends

    def _step(self, token: bytes) -> bytes | None:
        assert self._context is not None
        if not token and not self._is_answered:
            raise ValueError("the server has no GSSAPI set up: it sends no token")
        if not self._context.complete:
            return self._context.step(token) or b""  # checks the server's own proof
        if self._is_answered:
            return None
        offered = self._context.unwrap(token).message
        if len(offered) != 4 or not offered[0] & NO_LAYER:
            raise ValueError("the server demands that SASL protects the connection, and ZooKeeper has no such thing")
        self._is_answered = True
        return self._context.wrap(bytes([NO_LAYER, 0, 0, 0]), False).message


async def main(hosts: str) -> None:
    async with zkwire.connect(hosts, sasl=Kerberos()) as zk:
        print([f"{one.scheme}:{one.user}" for one in await zk.whoami()], flush=True)
        async for state in zk.states():
            print(state.name, flush=True)


if __name__ == "__main__":
    try:
        asyncio.run(main(sys.argv[1]))
    except (TimeoutError, zkwire.AuthFailedError) as error:
        sys.exit(f"ended: {error!r}")
