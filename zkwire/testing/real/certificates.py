"""Certificates for tests of TLS, made by the `openssl` command: an authority, and the certificates that it signs.

Knows openssl's command line, and the form that a ZooKeeper server of 3.5 to 3.9 takes for its key store and its trust
store: PEM, with the unencrypted key and the certificate in one file.
"""

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

LOOPBACK: Final = ("DNS:localhost", "IP:127.0.0.1", "IP:::1")
_DAYS: Final = "2"


class OpenSSLError(RuntimeError):
    """The `openssl` command is missing or failed; the message has its output."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate with its key. `chain` is one file with both, `subject` the name that an x509 identity has."""

    subject: str
    certificate: Path
    key: Path
    chain: Path


@dataclass(frozen=True, slots=True)
class Certificates:
    """The certificates for tests of TLS: of the authority, of a server and of a client.

    tls = make_certificates(folder)
    context = ssl.create_default_context(cafile=tls.ca.certificate)
    context.load_cert_chain(tls.client.chain)
    """

    ca: Certificate
    server: Certificate
    client: Certificate


def make_certificates(folder: Path) -> Certificates:
    """Make an authority, a certificate for a server on loopback and one for a client, as files in `folder`.

    Raises:
        OpenSSLError: if the command is missing or fails.
    """
    ca = authority(folder, "ca")
    return Certificates(ca, issue(ca, folder, "server"), issue(ca, folder, "client"))


def authority(folder: Path, name: str) -> Certificate:
    """Make a certificate, valid from now for two days, that may sign others.

    Raises:
        OpenSSLError: if the command is missing or fails.
    """
    return _make(folder, name, "-addext", "keyUsage=critical,keyCertSign,cRLSign")


def issue(ca: Certificate, folder: Path, name: str, *, hosts: Sequence[str] = LOOPBACK) -> Certificate:
    """Make a certificate signed by `ca`, for servers and clients alike.

    Args:
        ca: The authority.
        folder: The folder for the files.
        name: The name of the files and of the subject.
        hosts: The names that it is valid for: "DNS:zk1", "IP:127.0.0.1".

    Raises:
        OpenSSLError: if the command is missing or fails.
    """
    names = ("-addext", f"subjectAltName={','.join(hosts)}")
    use = ("-addext", "basicConstraints=critical,CA:FALSE", "-addext", "extendedKeyUsage=serverAuth,clientAuth")
    return _make(folder, name, *names, *use, "-CA", str(ca.certificate), "-CAkey", str(ca.key))


def _make(folder: Path, name: str, *options: str) -> Certificate:
    folder.mkdir(parents=True, exist_ok=True)
    files = (folder / f"{name}-certificate.pem", folder / f"{name}-key.pem", folder / f"{name}.pem")
    made = Certificate(f"CN={name},O=zkwire", *files)
    if shutil.which("openssl") is None:
        raise OpenSSLError("no openssl command is on the path: install OpenSSL 3")
    # One command, without a request or a serial file in between; the key comes as PKCS #8, which Java can read.
    command = [
        *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-noenc", "-days", _DAYS, "-subj", f"/O=zkwire/CN={name}"),
        *("-keyout", str(made.key), "-out", str(made.certificate)),
        *options,
    ]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        raise OpenSSLError(f"openssl req exited with {done.returncode}: {done.stdout.decode(errors='replace').strip()}")
    # For the owner alone, like the key that openssl has written.
    made.chain.unlink(missing_ok=True)
    with open(os.open(made.chain, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600), "wb") as chain:
        chain.write(made.key.read_bytes() + made.certificate.read_bytes())
    return made
