"""docs/examples/kerberos.py with a KDC of its own, and a ZooKeeper that serves those only whom it knows by Kerberos."""

# apt: krb5-kdc krb5-admin-server libkrb5-dev python3-dev gcc
# pip: gssapi==1.12.0

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.docs.programs import started, until_printed
from tests.support.proxy import Proxy
from zkwire.testing import RealServer
from zkwire.testing.real.loopback import free_ports


class Realm:
    """A Kerberos realm with its KDC on loopback; all its files are in `folder`."""

    kdc: subprocess.Popen[bytes]

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (port,) = free_ports(1)
        (folder / "krb5.conf").write_text(
            "[libdefaults]\n default_realm = TEST\n dns_canonicalize_hostname = false\n rdns = false\n"
            f" dns_lookup_kdc = false\n[realms]\n TEST = {{\n  kdc = 127.0.0.1:{port}\n }}\n"
        )
        (folder / "kdc.conf").write_text(
            f"[kdcdefaults]\n kdc_listen = 127.0.0.1:{port}\n kdc_tcp_listen = 127.0.0.1:{port}\n"
            f"[realms]\n TEST = {{\n  database_name = {folder}/principal\n  key_stash_file = {folder}/stash\n }}\n"
        )
        self.environment = {
            "PATH": f"{os.environ['PATH']}:/usr/sbin",  # where Debian has the programs of the KDC
            "KRB5_CONFIG": f"{folder}/krb5.conf",
            "KRB5_KDC_PROFILE": f"{folder}/kdc.conf",
            "KRB5CCNAME": f"FILE:{folder}/tickets",
        }
        self.run("kdb5_util", "create", "-s", "-r", "TEST", "-P", "a master key")
        self.start()

    def run(self, *command: str) -> None:
        subprocess.run(command, env=self.environment, check=True, capture_output=True)

    def keytab(self, principal: str) -> str:
        """Give a new principal a key, and return the name of a file with it."""
        keytab = f"{self._folder}/{principal.partition('/')[0]}.keytab"
        self.run("kadmin.local", "addprinc", "-randkey", principal)
        self.run("kadmin.local", "ktadd", "-k", keytab, principal)
        return keytab

    def forget_tickets(self) -> None:
        (self._folder / "tickets").unlink()

    def start(self) -> None:
        self.kdc = subprocess.Popen(["krb5kdc", "-n"], env=self.environment, stderr=subprocess.DEVNULL)

    def kill(self) -> None:
        self.kdc.kill()
        self.kdc.wait()


@asynccontextmanager
async def a_realm_and_its_server(folder: Path) -> AsyncIterator[tuple[Realm, Proxy]]:
    options = [f"-Djava.security.krb5.conf={folder}/krb5.conf", f"-Djava.security.auth.login.config={folder}/jaas.conf"]
    properties = {
        "authProvider.sasl": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
        "sessionRequireClientSASLAuth": "true",
    }
    realm = Realm(folder)
    try:
        (folder / "jaas.conf").write_text(
            "Server { com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true"
            f' keyTab="{realm.keytab("zookeeper/localhost")}" principal="zookeeper/localhost@TEST"; }};'
        )
        async with RealServer(jvm=options, properties=properties) as server, Proxy(server.hosts) as proxy:
            yield realm, proxy
    finally:
        realm.kill()


async def test_the_principal_is_proven_before_any_request(tmp_path: Path) -> None:
    """A KDC that is away, or hangs, is waited for; a credential that is wrong ends the client."""
    async with a_realm_and_its_server(tmp_path) as (realm, proxy):
        hosts = proxy.hosts.replace("127.0.0.1", "localhost")
        alice = {**realm.environment, "KRB5_CLIENT_KTNAME": realm.keytab("alice")}
        realm.kill()
        async with started("kerberos.py", hosts, **alice) as program:
            line = await until_printed(program, "no session with")
            assert "Cannot contact any KDC for realm 'TEST'" in line
            realm.start()
            assert await until_printed(program, "[") == "['ip:127.0.0.1', 'sasl:alice@TEST']"
            assert proxy.requests(0)[:4] == ["connect", "sasl", "sasl", "sasl"]
            assert await until_printed(program, "CONNECTED")
            realm.kdc.send_signal(signal.SIGSTOP)
            realm.forget_tickets()
            proxy.drop()
            assert "no first token of the SASL mechanism within 5 s" in await until_printed(program, "no session with")
            realm.kdc.send_signal(signal.SIGCONT)
            assert "resumed session" in await until_printed(program, "connected to")
        realm.forget_tickets()
        realm.run("kadmin.local", "cpw", "-randkey", "alice")  # the key in the keytab is an old one
        async with started("kerberos.py", hosts, **alice) as program:
            assert "no authentication by SASL with" in await until_printed(program, "ended: ")
            assert await asyncio.wait_for(program.wait(), 10) == 1
