"""Framing: splits a stream of bytes into frames.  On the wire each frame follows its length.

This module knows only the length prefix and a limit.  Memory is bounded by the limit plus one read, because a frame
that is too long is refused as soon as its length is there, before any of it is kept.
"""

from __future__ import annotations

import struct
from typing import Final

from zkwire.errors import ProtocolError

LENGTH: Final = struct.Struct(">i")
# The first two bytes of a TLS record that holds an alert or a handshake.
_TLS_RECORDS: Final = (0x1503, 0x1603)


class TlsRecordError(ProtocolError):
    """In place of a frame's length came the beginning of a TLS record."""


class FrameError(Exception):
    """A `length` that is negative or above the limit; `frames` holds the complete frames before it."""

    def __init__(self, length: int, limit: int, frames: list[bytes]) -> None:
        super().__init__(f"a frame of {length} bytes, where 0 to {limit} are accepted")
        self.length = length
        self.frames = frames

    def protocol_error(self) -> ProtocolError:
        """Return the error that ends the connection."""
        kind = TlsRecordError if self.length >> 16 in _TLS_RECORDS else ProtocolError
        return kind(str(self))


class FrameReader:
    """Splits a stream into frames.

    Arguments: `limit`, the largest frame to accept, in bytes without its length prefix.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0  # number of bytes kept of the unfinished frame at the end of what has come
        self._parts: list[bytes] = []
        # How many kept bytes it takes to get any further: the rest of the length, or of the frame once its length is
        # known.  Without it a large frame that comes in small pieces would be joined again for each piece.  It is set
        # whenever bytes are kept.
        self._wanted: int

    def feed(self, data: bytes) -> list[bytes]:
        """Take the next bytes of the stream and return the frames that are now complete, without their lengths.

        Raises: FrameError at a bad length, with the complete frames before it.  Nothing after it can be trusted.
        """
        size = len(data)
        if not self._parts and size >= 4:
            (length,) = LENGTH.unpack_from(data)
            if length == size - 4 <= self.limit:
                return [data[4:]]  # the usual case: one read holds exactly one frame
        if self._parts:
            self._parts.append(data)
            self.held += len(data)
            if self.held < self._wanted:
                return []
            data = b"".join(self._parts)
            self._parts.clear()
        frames: list[bytes] = []
        at, size = 0, len(data)
        while size - at >= 4:
            (length,) = LENGTH.unpack_from(data, at)
            if length < 0 or length > self.limit:
                raise FrameError(length, self.limit, frames)
            end = at + 4 + length
            if end > size:
                self._wanted = 4 + length
                break
            frames.append(data[at + 4 : end])
            at = end
        else:
            self._wanted = 4
        if at < size:
            self._parts.append(data[at:])
        self.held = size - at
        return frames

    @property
    def is_between_frames(self) -> bool:
        """Whether the stream could end here without cutting a frame."""
        return not self.held
