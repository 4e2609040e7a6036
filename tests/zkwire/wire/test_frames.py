"""Framing: a stream gives the same frames however it is cut; bad lengths are refused at once; memory is bounded."""

import struct
import sys
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkwire.errors import ProtocolError
from zkwire.wire.frames import FrameReader, TlsRecordError

LIMIT = 40
payloads = st.lists(st.binary(max_size=LIMIT), max_size=8)


def _framed(frames: list[bytes]) -> bytes:
    return b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)


def _pieces(stream: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(cut for cut in cuts if cut <= len(stream)), len(stream)]
    return [stream[start:end] for start, end in pairwise(edges)]


@given(payloads, st.lists(st.integers(0, 400), max_size=20), st.integers(0, 400))
def test_a_stream_that_ends_anywhere_gives_its_complete_frames_and_knows_if_it_ended_inside_one(
    frames: list[bytes], cuts: list[int], kept: int
) -> None:
    stream = _framed(frames)[:kept]
    whole: list[bytes] = []
    for frame in frames:
        if len(_framed([*whole, frame])) > len(stream):
            break
        whole.append(frame)
    reader = FrameReader(LIMIT)
    assert [frame for piece in _pieces(stream, cuts) for frame in reader.feed(piece)] == whole
    assert (reader.held, reader.error) == (len(stream) - len(_framed(whole)), None)


def test_a_large_frame_in_small_pieces_is_joined_once() -> None:
    """Joined again for each piece, a frame of 64 MiB would take minutes."""
    stream = _framed([bytes(100_000)])
    joins = 0

    def count(_: object, event: str, called: object) -> None:
        nonlocal joins
        joins += event == "c_call" and getattr(called, "__name__", "") == "join"

    reader = FrameReader(100_000)
    before = sys.getprofile()
    sys.setprofile(count)
    try:
        frames = [frame for at in range(0, len(stream), 100) for frame in reader.feed(stream[at : at + 100])]
    finally:
        sys.setprofile(before)
    assert frames == [bytes(100_000)]
    assert joins <= 2


@pytest.mark.parametrize(
    ("length", "kind"),
    [
        (0x15030300, TlsRecordError),  # an alert
        (0x16030302, TlsRecordError),  # a handshake
        (-1, ProtocolError),
    ],
)
def test_the_beginning_of_a_tls_record_is_known(length: int, kind: type[ProtocolError]) -> None:
    reader = FrameReader(LIMIT)
    assert reader.feed(struct.pack(">i", length)) == []
    assert type(reader.error) is kind


bad_lengths = st.one_of(
    st.integers(-(2**31), -1),
    st.integers(LIMIT + 1, 2**31 - 1),
    st.sampled_from([-1, LIMIT + 1, 2**31 - 1, -(2**31), 0x72756F6B]),
)


@given(payloads, bad_lengths, st.lists(st.integers(0, 400), max_size=10), st.binary(max_size=9))
def test_a_bad_length_is_refused_at_its_fourth_byte_with_the_frames_before_it(
    frames: list[bytes], length: int, cuts: list[int], after: bytes
) -> None:
    stream = _framed(frames) + struct.pack(">i", length)
    *first, last = [*_pieces(stream[:-1], cuts), stream[-1:] + after]
    reader = FrameReader(LIMIT)
    got = [frame for piece in first for frame in reader.feed(piece)]
    assert reader.error is None
    assert got + reader.feed(last) == frames
    assert str(reader.error) == f"a frame of {length} bytes, where 0 to {LIMIT} are accepted"
    assert reader.held
    assert reader.feed(_framed([b"more"])) == []
