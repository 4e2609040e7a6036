"""Jute, ZooKeeper's serialisation: its primitives, and `@record`, which makes a class's codec from its declaration.

A record is its fields back to back in the declared order, big-endian, with no tags, no lengths and no padding:

    @record
    class GetDataRequest:
        path: UString
        watch: Boolean

Decoders take the bytes of one frame and an offset, and give the value and the offset behind it.  They raise
`DecodeError` on anything that is too short or too long, and never read beyond the frame.  What follows the last field
is not looked at: that is how the protocol lets newer servers append.  Each codec is a function generated once, when
its class is made, so that no declaration is read and no format string is built per call.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, Final, TypeAlias, TypeVar, dataclass_transform, get_args, get_type_hints

Decoder: TypeAlias = Callable[[bytes, int], tuple[Any, int]]
Encoder: TypeAlias = Callable[[Any], bytes]

_T = TypeVar("_T")

INT: Final = struct.Struct(">i")


class DecodeError(Exception):
    """The bytes are not what the declaration says."""


class _Fixed:
    """A field of fixed size; neighbours are packed and unpacked together by one precompiled struct."""

    def __init__(self, code: str) -> None:
        self.code = code


class _Variable:
    """A field that carries its own length."""

    def __init__(self, encode: Encoder, decode: Decoder) -> None:
        self.encode = encode
        self.decode = decode


class _VectorOf:
    """A counted sequence of the type that it annotates."""


def encode_buffer(value: bytes | None) -> bytes:
    """Return the length and the bytes; None is the length -1, which is not the same as empty."""
    return b"\xff\xff\xff\xff" if value is None else INT.pack(len(value)) + value


def decode_buffer(data: bytes, at: int) -> tuple[bytes | None, int]:
    """Return the buffer at `at`, None for the length -1."""
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
    """Return the length in bytes and the UTF-8."""
    encoded = value.encode()
    return INT.pack(len(encoded)) + encoded


def decode_ustring(data: bytes, at: int) -> tuple[str, int]:
    """Return the string at `at`; a null one reads as empty, as nothing in the client protocol tells them apart."""
    raw, at = decode_buffer(data, at)
    try:
        return (raw.decode() if raw else ""), at
    except UnicodeDecodeError as error:
        raise DecodeError(f"a string that is not UTF-8, before byte {at}: {error}") from None


def encode_nullable_ustring(value: str | None) -> bytes:
    """Return the string, or the length -1 for None."""
    return b"\xff\xff\xff\xff" if value is None else encode_ustring(value)


def _vector(encode: Encoder, decode: Decoder) -> _Variable:
    def encode_vector(values: Sequence[Any]) -> bytes:
        return INT.pack(len(values)) + b"".join(map(encode, values))

    def decode_vector(data: bytes, at: int) -> tuple[list[Any], int]:
        try:
            (count,) = INT.unpack_from(data, at)
        except struct.error:
            raise DecodeError(f"the frame ends inside a count, at byte {at}") from None
        at += 4
        if count > len(data) - at:  # an element has at least one byte: refuse before a list is grown
            raise DecodeError(f"a count of {count} at byte {at - 4}, but only {len(data) - at} bytes follow")
        values = []
        for _ in range(count):
            value, at = decode(data, at)
            values.append(value)
        return values, at

    return _Variable(encode_vector, decode_vector)


def _decode_names(data: bytes, at: int) -> tuple[list[str], int]:
    """The vector of strings, written out: a lock reads one at every turn of its line."""
    unpack = INT.unpack_from
    size = len(data)
    try:
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


Boolean: TypeAlias = Annotated[bool, _Fixed("?")]
Int: TypeAlias = Annotated[int, _Fixed("i")]
Long: TypeAlias = Annotated[int, _Fixed("q")]
UString: TypeAlias = Annotated[str, _Variable(encode_ustring, decode_ustring)]
Buffer: TypeAlias = Annotated[bytes | None, _Variable(encode_buffer, decode_buffer)]
Vector: TypeAlias = Annotated[Sequence[_T], _VectorOf()]
Names: TypeAlias = Annotated[list[str], _Variable(_vector(encode_ustring, decode_ustring).encode, _decode_names)]


class Record:
    """What `@record` makes of a class: a slotted dataclass that can be written to and read from the wire."""

    __slots__ = ()

    @staticmethod
    def decode(data: bytes, at: int) -> tuple[Any, int]:
        """Return the record whose bytes begin at `at`, and the offset behind it.  Raises: DecodeError."""
        raise TypeError("only a class declared with @record can be decoded")

    def encode(self) -> bytes:
        """Return the record's bytes: its fields in the declared order."""
        raise TypeError(f"{type(self).__name__} is not declared with @record")


@dataclass_transform()
def record(cls: type[_T]) -> type[_T]:
    """Make `cls`, a subclass of Record with annotated fields, a slotted dataclass with `encode` and `decode`.

    Raises: TypeError when a field's type is no jute type.
    """
    made = dataclass(slots=True)(cls)
    hints = get_type_hints(made, include_extras=True)
    names = [field.name for field in fields(made)]  # type: ignore[arg-type]
    codecs = [(name, _codec(f"{cls.__name__}.{name}", hints[name])) for name in names]
    made.encode = _make_encoder(cls.__name__, codecs)  # type: ignore[attr-defined]
    made.decode = staticmethod(_make_decoder(made, codecs))  # type: ignore[attr-defined]
    return made


def _codec(where: str, declared: Any) -> _Fixed | _Variable:
    if isinstance(declared, type) and issubclass(declared, Record):
        return _Variable(declared.encode, declared.decode)
    for mark in getattr(declared, "__metadata__", ()):
        if isinstance(mark, _Fixed | _Variable):
            return mark
        if isinstance(mark, _VectorOf):
            (element,) = get_args(declared.__origin__)
            codec = _codec(where, element)
            if isinstance(codec, _Variable):
                return _vector(codec.encode, codec.decode)
            return _vector_of_fixed(struct.Struct(">" + codec.code))
    raise TypeError(f"{where}: {declared!r} is no jute type")


def _vector_of_fixed(element: struct.Struct) -> _Variable:
    def decode(data: bytes, at: int) -> tuple[Any, int]:
        try:
            return element.unpack_from(data, at)[0], at + element.size
        except struct.error:
            raise DecodeError(f"the frame ends inside a field of {element.size} bytes, at byte {at}") from None

    return _vector(element.pack, decode)


def _groups(codecs: list[tuple[str, _Fixed | _Variable]]) -> list[tuple[list[str], struct.Struct | _Variable]]:
    """Join neighbouring fixed fields, so that a Stat is one struct and not eleven."""
    groups: list[tuple[list[str], struct.Struct | _Variable]] = []
    names: list[str] = []
    codes = ""
    for name, codec in codecs:
        if isinstance(codec, _Fixed):
            names.append(name)
            codes += codec.code
            continue
        if names:
            groups.append((names, struct.Struct(">" + codes)))
            names, codes = [], ""
        groups.append(([name], codec))
    if names:
        groups.append((names, struct.Struct(">" + codes)))
    return groups


def _make_encoder(record_name: str, codecs: list[tuple[str, _Fixed | _Variable]]) -> Callable[[Any], bytes]:
    scope: dict[str, Any] = {"error": struct.error}
    terms = []
    for number, (names, codec) in enumerate(_groups(codecs)):
        scope[f"pack{number}"] = codec.pack if isinstance(codec, struct.Struct) else codec.encode
        terms.append(f"pack{number}({', '.join('self.' + name for name in names)})")
    lines = [
        "try:",
        f"    return {' + '.join(terms) or repr(b'')}",
        "except error as wrong:",  # a number that does not fit is the caller's mistake
        f"    raise ValueError(f'{record_name}: {{wrong}}') from None",
    ]
    return _generate("encode", ["self"], lines, scope)


def _make_decoder(cls: type[Any], codecs: list[tuple[str, _Fixed | _Variable]]) -> Decoder:
    scope: dict[str, Any] = {"cls": cls, "new": object.__new__, "error": struct.error, "DecodeError": DecodeError}
    lines = ["self = new(cls)"]
    for number, (names, codec) in enumerate(_groups(codecs)):
        targets = ", ".join("self." + name for name in names)
        if isinstance(codec, struct.Struct):
            scope[f"unpack{number}"] = codec.unpack_from
            lines += [
                "try:",
                f"    {targets}, = unpack{number}(data, at)",
                "except error:",
                f"    raise DecodeError(f'{cls.__name__}: the frame ends in a field, behind byte {{at}}') from None",
                f"at += {codec.size}",
            ]
        else:
            scope[f"decode{number}"] = codec.decode
            lines.append(f"{targets}, at = decode{number}(data, at)")
    return _generate("decode", ["data", "at"], [*lines, "return self, at"], scope)


def _generate(name: str, parameters: list[str], lines: list[str], scope: dict[str, Any]) -> Callable[..., Any]:
    source = f"def {name}({', '.join(parameters)}):\n" + "\n".join("    " + line for line in lines)
    exec(source, scope)
    made: Callable[..., Any] = scope[name]
    return made
