"""What a SetWatches request on the wire asks for."""

import struct

from tests.support.proxy import Frame


def lists_of(frame: Frame) -> list[list[str]]:
    """Return the lists of paths of a SetWatches (three) or SetWatches2 (five)."""
    at = 8  # behind the zxid
    lists: list[list[str]] = []
    for _ in range(5 if frame.opcode == "setWatches2" else 3):
        (count,) = struct.unpack_from(">i", frame.body, at)
        at += 4
        names = []
        for _ in range(count):
            (length,) = struct.unpack_from(">i", frame.body, at)
            names.append(frame.body[at + 4 : at + 4 + length].decode())
            at += 4 + length
        lists.append(names)
    assert at == len(frame.body)
    return lists
