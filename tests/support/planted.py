"""Secrets that tests plant, and a watch for them over everything that is printed meanwhile.

The fixture `no_secret_printed` of tests/conftest.py uses it: a test that has it fails when one of the secrets stands in
a log record, a warning, the output, an error or its causes, or in a local variable of the product in a traceback.
"""

from __future__ import annotations

import base64
import logging
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import zkwire
from zkwire.wire.records import ConnectResponse

_ROOT = Path(zkwire.__file__).resolve().parents[1]
_PRODUCT = (str(_ROOT / "zkwire"), str(_ROOT / "recipes"))
_SERVERS = str(_ROOT / "zkwire" / "testing")
_PLANTED: set[bytes] = set()


def planted(secret: str) -> str:
    """Return `secret` and note that it must never be printed; take a text that stands nowhere else."""
    _PLANTED.add(secret.encode())
    return secret


def shows(text: str, secrets: set[bytes]) -> bool:
    """Return whether one of `secrets` stands in `text` in any of the forms in which a program prints bytes."""
    return any(form in text for secret in secrets for form in _forms(secret))


def _forms(secret: bytes) -> Iterator[str]:
    yield repr(secret)[2:-1]
    yield secret.hex()
    yield base64.b64encode(secret).decode().rstrip("=")
    yield str(list(secret))[1:-1]
    try:
        yield secret.decode()
    except UnicodeDecodeError:
        pass
    else:
        yield repr(secret.decode())[1:-1]


class Watch:
    """Collects what is printed; `check` fails the test if a secret is in it.

    Arguments: `patch`, which undoes what the watch changes.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.secrets = set(_PLANTED)
        self._texts: list[tuple[str, str]] = []
        self._errors: list[BaseException] = []
        self._patch = patch
        self._handler = logging.Handler(logging.DEBUG)
        self._level = logging.getLogger().level

    def begin(self) -> None:
        """Begin: every log record, every error of zkwire, and every session's password is noted from here on."""
        ConnectResponse.decode(ConnectResponse(0, 1, 1, None).encode(), 0)  # its own `decode` is made at the first use
        init, decode = zkwire.ZooKeeperError.__init__, ConnectResponse.decode

        def noting_init(error: zkwire.ZooKeeperError, *args: object) -> None:
            init(error, *args)
            self._errors.append(error)

        def noting_decode(data: bytes, at: int) -> tuple[Any, int]:
            response, end = decode(data, at)
            if any(response.password or b""):
                self.secrets.add(response.password)
            return response, end

        self._patch.setattr(zkwire.ZooKeeperError, "__init__", noting_init)
        self._patch.setattr(ConnectResponse, "decode", staticmethod(noting_decode))
        self._patch.setattr(self._handler, "emit", self._log)
        root = logging.getLogger()
        root.addHandler(self._handler)
        root.setLevel(logging.DEBUG)

    def end(self) -> None:
        """Note no further log record."""
        root = logging.getLogger()
        root.removeHandler(self._handler)
        root.setLevel(self._level)

    def _log(self, record: logging.LogRecord) -> None:
        self._texts.append(("a log record", f"{record.getMessage()} {record.args!r}"))
        if record.exc_info and record.exc_info[1] is not None:
            self._errors.append(record.exc_info[1])

    def add(self, what: str, text: str) -> None:
        """Add a text that was printed."""
        self._texts.append((what, text))

    def add_error(self, error: BaseException) -> None:
        """Add an error that a caller has got."""
        self._errors.append(error)

    def check(self) -> None:
        """Fail if a secret stands in anything that was noted."""
        seen: set[int] = set()
        for error in self._errors:
            self._add_printed(error, seen)
        bad = [f"{what}: {text}" for what, text in self._texts if shows(text, self.secrets)]
        if bad:
            pytest.fail("a secret is printed in\n" + "\n".join(bad), pytrace=False)

    def _add_printed(self, error: BaseException, seen: set[int]) -> None:
        if id(error) in seen:
            return
        seen.add(id(error))
        self.add("an error", f"{error} {error!r} {error.args!r} {vars(error)!r}")
        self.add("a traceback", "".join(traceback.format_exception(error)))
        for frame, _ in traceback.walk_tb(error.__traceback__):
            if _is_product(frame):
                where = f"local variables of {frame.f_code.co_qualname} in the traceback of {type(error).__name__}"
                self.add(where, repr({name: value for name, value in frame.f_locals.items() if name != "self"}))
        for cause in (error.__cause__, error.__context__):
            if cause is not None:
                self._add_printed(cause, seen)


def _is_product(frame: FrameType) -> bool:
    name = frame.f_code.co_filename
    return name.startswith(_PRODUCT) and not name.startswith(_SERVERS)
