"""Jute's primitive types: how numbers, strings, buffers and vectors of them stand on the wire.

A decoder takes the bytes of one frame and an offset, and returns the value and the offset after it.  It raises
`DecodeError` for bytes that are too short or hold an impossible length, and never reads beyond the frame.

The names at the end are the types of a record's fields; jute.py makes records of them.
"""

import struct
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, NamedTuple, TypeAlias, TypeVar

Decoder: TypeAlias = Callable[[bytes, int], tuple[Any, int]]
Encoder: TypeAlias = Callable[[Any], bytes]

_T = TypeVar("_T")

INT: Final = struct.Struct(">i")
_MOST_REMEMBERED: Final = 100  # vectors
# Of a string that is not UTF-8, in bytes: decoding it takes a hundred times as long, while the event loop stands still.
_LONGEST_OF_JAVA: Final = 4096


class DecodeError(Exception):
    """The bytes do not fit the declaration."""


class Fixed(NamedTuple):
    """A field of fixed size; one precompiled struct packs and unpacks all that are next to each other."""

    code: str


class Variable(NamedTuple):
    """A field with a length in front.

    Each of the two is a function, or source lines to be put into a generated codec: an encoder sets `{target}` to the
    bytes of `{source}`; a decoder runs after the length has been read into `size`, and moves `at`.
    """

    encode: Encoder | str
    decode: Decoder | str


class VectorCodec(Variable):
    """The codec of a counted sequence: `decode` also takes, as a third argument, how many elements to decode there.

    Without that argument the count is read first.  This is one function, because a lock reads many lists.
    """


class VectorOf:
    """The annotation of a counted sequence of records; the type that it annotates names their class."""


def encode_buffer(value: bytes | None) -> bytes:
    """Return the length and the bytes; None is encoded as the length -1, an empty buffer as the length 0."""
    return b"\xff\xff\xff\xff" if value is None else INT.pack(len(value)) + value


def decode_buffer(data: bytes, at: int) -> tuple[bytes | None, int]:
    """Return the buffer at `at`, None for the length -1, and the offset after it."""
    try:
        (length,) = INT.unpack_from(data, at)
    except struct.error:
        raise DecodeError(f"the frame ends inside a length, at byte {at}") from None
    at += 4
    if length < 0:
        if length == -1:
            return None, at
        raise DecodeError(f"a length of {length} at byte {at - 4}")
    end = at + length
    if end > len(data):
        raise DecodeError(f"a length of {length} at byte {at - 4}, but only {len(data) - at} bytes follow")
    return data[at:end], end


def encode_ustring(value: str) -> bytes:
    """Return the string as UTF-8, after its length in bytes."""
    encoded = value.encode()
    return INT.pack(len(encoded)) + encoded


def decode_java_string(data: bytes, at: int) -> tuple[str | None, int]:
    """Return the string at `at` or None, as a Java server writes it.

    Java keeps a character above U+FFFF as two surrogates.  A server writes each of them as three bytes, which is not
    UTF-8, but reads only UTF-8: the two are joined here, so that a string that was read can be sent back.  Other bytes
    that are not UTF-8 become U+FFFD.
    """
    raw, at = decode_buffer(data, at)
    if raw is None:
        return None, at
    try:
        return raw.decode(), at
    except UnicodeDecodeError:
        pass
    if len(raw) > _LONGEST_OF_JAVA:
        raise DecodeError(f"a string of {len(raw)} bytes that is not UTF-8, before byte {at}")
    try:
        return raw.decode("utf-8", "surrogatepass").encode("utf-16", "surrogatepass").decode("utf-16"), at
    except UnicodeDecodeError:  # a surrogate without its other half, or no character at all
        return raw.decode("utf-8", "replace"), at


def vector_encoder(encode: Encoder) -> Encoder:
    """Return the encoder of a counted sequence, made of the encoder of its elements."""

    def encode_vector(values: Sequence[Any]) -> bytes:
        return INT.pack(len(values)) + b"".join(map(encode, values))

    return encode_vector


def vector_decoder(decode: Decoder) -> Decoder:
    """Return the decoder of a counted sequence, made of the decoder of its elements."""

    def decode_vector(data: bytes, at: int, count: int | None = None) -> tuple[list[Any], int]:
        if count is None:
            try:
                (count,) = INT.unpack_from(data, at)
            except struct.error:
                raise DecodeError(f"the frame ends inside a count, at byte {at}") from None
            at += 4
            # Each element of the protocol's vectors takes at least one byte.  Refuse an impossible count here, before
            # the loop builds a list as long as a broken or hostile peer likes.
            if count > len(data) - at:
                raise DecodeError(f"a count of {count} at byte {at - 4}, but only {len(data) - at} bytes follow")
        values = []
        for _ in range(count):
            value, at = decode(data, at)
            values.append(value)
        return values, at

    return decode_vector


def remembering(encode: Encoder) -> Encoder:
    """Return `encode`, for vectors of frozen records, with a memory of the tuples that it has encoded lately.

    Programs create many nodes with few ACLs.  A tuple of frozen records cannot change.  The memory keeps the tuple, so
    that no other object gets its id.
    """
    known: dict[int, tuple[object, bytes]] = {}

    def encode_or_remember(values: Any) -> bytes:
        found = known.get(id(values))
        if found is not None:
            return found[1]
        encoded = encode(values)
        if type(values) is tuple:
            if len(known) >= _MOST_REMEMBERED:
                known.clear()
            known[id(values)] = values, encoded
        return encoded

    return encode_or_remember


def _decode_names(data: bytes, at: int, count: int | None = None) -> tuple[list[str], int]:
    """Decode a vector of strings, or `count` of its elements.

    It is written out by hand, because it is the hottest vector: a lock reads the names of all its waiters at each turn.
    """
    unpack = INT.unpack_from
    size = len(data)
    try:
        if count is None:
            (count,) = unpack(data, at)
            at += 4
        names = []
        for _ in range(count):
            (length,) = unpack(data, at)
            at += 4
            end = at + length
            if length < 0 or end > size:
                raise DecodeError(f"a string of {length} bytes at byte {at - 4}, in a frame of {size}")
            names.append(data[at:end].decode())
            at = end
    except struct.error:
        raise DecodeError(f"the frame ends inside a vector of strings, at byte {at}") from None
    except UnicodeDecodeError as error:
        raise DecodeError(f"a string that is not UTF-8, before byte {at}: {error}") from None
    return names, at


def _decode_text(data: bytes, at: int) -> tuple[str, int]:
    text, end = decode_buffer(data, at)
    if text is None:
        raise DecodeError(f"a null string in a vector, at byte {at}")
    return text.decode("utf-8", "replace"), end


_decode_not_null: Final = vector_decoder(_decode_text)


def _decode_texts(data: bytes, at: int) -> tuple[list[str], int]:
    """Decode a vector of strings as the Java server does: neither the vector nor an element may be null."""
    if data.startswith(b"\xff\xff\xff\xff", at):
        raise DecodeError(f"a null vector, at byte {at}")
    return _decode_not_null(data, at)


_DECODE_BUFFER: Final = """\
end = at + size
if size < 0 or end > len(data):
    if size != -1:
        raise bad(size, at, data)
    {target} = None
else:
    {target} = data[at:end]
    at = end"""
_DECODE_USTRING: Final = _DECODE_BUFFER.replace("None", '""').replace("data[at:end]", "data[at:end].decode()")
_DECODE_NULLABLE: Final = _DECODE_BUFFER.replace("data[at:end]", 'data[at:end].decode("utf-8", "replace")')

_ENCODE_NULLABLE: Final = """\
value = {source}
if value is None:
    {target} = b"\\xff\\xff\\xff\\xff"
else:
    value = value.encode()
    {target} = pack_int(len(value)) + value"""
_ENCODE_BUFFER: Final = _ENCODE_NULLABLE.replace("    value = value.encode()\n", "")

Boolean: TypeAlias = Annotated[bool, Fixed("?")]
Int: TypeAlias = Annotated[int, Fixed("i")]
Long: TypeAlias = Annotated[int, Fixed("q")]
UString: TypeAlias = Annotated[str, Variable(encode_ustring, _DECODE_USTRING)]
_NULLABLE: Final = Variable(_ENCODE_NULLABLE, _DECODE_NULLABLE)
NullableUString: TypeAlias = Annotated[str | None, _NULLABLE]
# A string in a request.  zkwire never sends null, so the type is `str`.  Other clients can send null to the in-memory
# server, which then reads None.
Text: TypeAlias = Annotated[str, _NULLABLE]
# An id or a user's name, in requests and replies.
JavaText: TypeAlias = Annotated[str, Variable(_ENCODE_NULLABLE, decode_java_string)]
_BUFFER: Final = Variable(_ENCODE_BUFFER, _DECODE_BUFFER)
Buffer: TypeAlias = Annotated[bytes | None, _BUFFER]
# A password, or what proves that a client knows one: not in a record's repr, which errors, logs and tracebacks print.
Secret: TypeAlias = Annotated[bytes | None, _BUFFER, "secret"]
Vector: TypeAlias = Annotated[Sequence[_T], VectorOf()]
Texts: TypeAlias = Annotated[list[str], Variable(vector_encoder(encode_ustring), _decode_texts)]
Names: TypeAlias = Annotated[list[str], VectorCodec(vector_encoder(encode_ustring), _decode_names)]
