"""How a request is refused inside the server: one exception that carries the error's code."""

from zkwire.errors import ServerError


class Refused(Exception):
    """Raised to answer a request with an error.

    Args:
        error: The class of zkwire.errors with the code.
        body: What follows the header, which is empty but in one case.
    """

    def __init__(self, error: type[ServerError], body: bytes = b"") -> None:
        super().__init__(error.__name__)
        self.code: int = error.code
        self.body = body
