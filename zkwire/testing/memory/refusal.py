"""How a request is refused inside the server: one exception that carries the error's code."""

from __future__ import annotations

from zkwire.errors import ServerError


class Refused(Exception):
    """The request gets an error.

    Arguments: `error`, the class of zkwire.errors that stands for the code; `body`, what follows the header after
    all, in the one case where something does.
    """

    def __init__(self, error: type[ServerError], body: bytes = b"") -> None:
        super().__init__(error.__name__)
        self.code = error.code
        self.body = body
