"""A repository of jars on loopback: files with their checksums, served over HTTP."""

import contextlib
import hashlib
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve the files of `folder` within the block; give the address."""
    folder.mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder))) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def publish(folder: Path, path: str, content: bytes, checksum: bytes | None = None) -> None:
    """Put a file there, with its checksum or another one."""
    file = folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    stated = hashlib.sha1(content).hexdigest().encode() if checksum is None else checksum
    file.with_name(f"{file.name}.sha1").write_bytes(stated)
