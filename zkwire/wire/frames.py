"""Framing: a stream of bytes into frames, each behind its length, and back.

Knows only the length prefix and a limit.  Memory is bounded by the limit plus one read: a longer frame is refused by
its length, before any of it is kept.
"""

from __future__ import annotations

import struct
from typing import Final

LENGTH: Final = struct.Struct(">i")


class FrameError(Exception):
    """A length that is negative or above the limit; `frames` holds the whole frames in front of it."""

    def __init__(self, length: int, limit: int, frames: list[bytes]) -> None:
        super().__init__(f"a frame of {length} bytes, where 0 to {limit} are accepted")
        self.frames = frames


class FrameReader:
    """Cuts a stream into frames.

    Arguments: `limit`, the largest frame to accept, in bytes without its length prefix.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0  # bytes of an unfinished frame
        self._parts: list[bytes] = []
        self._wanted = 4  # bytes from the start of the first unfinished frame that are worth looking at again

    def feed(self, data: bytes) -> list[bytes]:
        """Take the next bytes of the stream and return the frames that are now whole, without their lengths.

        Raises: FrameError; nothing behind a bad length can be trusted, the whole frames in front of it are in the
        error.
        """
        size = len(data)
        if not self._parts and size >= 4:
            (length,) = LENGTH.unpack_from(data)
            if length == size - 4 <= self.limit:
                return [data[4:]]  # nearly always: one read, one frame
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
        """Whether the stream may end here without tearing a frame."""
        return not self.held
