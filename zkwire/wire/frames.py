"""Framing: splits a stream of bytes into frames.  On the wire each frame follows its length.

This module knows only the length prefix and a limit.  Memory is bounded by the limit plus one read, because a frame
that is too long is refused as soon as its length is there, before any of it is kept.
"""

import struct
from typing import Final

from zkwire.errors import ProtocolError

LENGTH: Final = struct.Struct(">i")
# The first two bytes of a TLS record that holds an alert or a handshake.
_TLS_RECORDS: Final = (0x1503, 0x1603)


class TlsRecordError(ProtocolError):
    """In place of a frame's length came the beginning of a TLS record."""


class FrameReader:
    """Splits a stream into frames.

    Args:
        limit: The largest frame to accept, in bytes without its length prefix.

    Attributes:
        held: How many bytes are kept of what has come: the unfinished frame at its end.
        error: What ends the stream, after the frames before it: a length that is negative or above the limit.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held: int = 0
        self.error: ProtocolError | None = None
        self._parts: list[bytes] = []
        # How many kept bytes it takes to get any further: the rest of the length, or of the frame once its length is
        # known.  Without it a large frame that comes in small pieces would be joined again for each piece.
        self._wanted: int

    def feed(self, data: bytes) -> list[bytes]:
        """Take the next bytes of the stream and return the frames that are now complete, without their lengths."""
        if self.error is not None:  # nothing after a bad length can be trusted
            return []
        if self._parts:
            self._parts.append(data)
            self.held += len(data)
            if self.held < self._wanted:
                return []
            data = b"".join(self._parts)
            self._parts.clear()
        frames: list[bytes] = []
        at, size = 0, len(data)
        self._wanted = LENGTH.size
        while size - at >= LENGTH.size:
            (length,) = LENGTH.unpack_from(data, at)
            if not 0 <= length <= self.limit:
                kind = TlsRecordError if length >> 16 in _TLS_RECORDS else ProtocolError
                self.error = kind(f"a frame of {length} bytes, where 0 to {self.limit} are accepted")
                break
            end = at + LENGTH.size + length
            if end > size:
                self._wanted = end - at
                break
            frames.append(data[at + LENGTH.size : end])
            at = end
        if at < size:
            self._parts.append(data[at:])
        self.held = size - at
        return frames
