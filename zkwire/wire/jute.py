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

_Codec: TypeAlias = "_Fixed | _Variable | _Nested"
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
    """A field that carries its own length; `plain` is its decoder as lines that follow the reading of that length."""

    def __init__(self, encode: Encoder, decode: Decoder, plain: str | None = None) -> None:
        self.encode = encode
        self.decode = decode
        self.plain = plain


class _Nested:
    """A field that is a record."""

    def __init__(self, record: type[Any], codecs: list[tuple[str, _Codec]]) -> None:
        self.record = record
        self.codecs = codecs
        self.encode: Encoder = record.encode
        self.decode: Decoder = record.decode


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
    if value is None:
        return b"\xff\xff\xff\xff"
    encoded = value.encode()
    return INT.pack(len(encoded)) + encoded


def decode_nullable_ustring(data: bytes, at: int) -> tuple[str | None, int]:
    """Return the string at `at`, None for a null one; what is not UTF-8 becomes U+FFFD, as Java's server reads it."""
    raw, at = decode_buffer(data, at)
    return (None if raw is None else raw.decode("utf-8", "replace")), at


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


def _decode_text(data: bytes, at: int) -> tuple[str, int]:
    text, end = decode_nullable_ustring(data, at)
    if text is None:
        raise DecodeError(f"a null string in a vector, at byte {at}")
    return text, end


def _decode_texts(data: bytes, at: int) -> tuple[list[str], int]:
    """The vector of strings as a server reads it: neither it nor one of them may be null."""
    if data[at : at + 4] == b"\xff\xff\xff\xff":
        raise DecodeError(f"a null vector, at byte {at}")
    return _vector(encode_ustring, _decode_text).decode(data, at)


_PLAIN_BUFFER: Final = """\
end = at + size
if size < 0 or end > len(data):
    if size != -1:
        raise bad(size, at, data)
    {target} = None
else:
    {target} = data[at:end]
    at = end"""

_PLAIN_USTRING: Final = _PLAIN_BUFFER.replace("None", '""').replace("data[at:end]", "data[at:end].decode()")
_PLAIN_NULLABLE: Final = _PLAIN_BUFFER.replace("data[at:end]", 'data[at:end].decode("utf-8", "replace")')

Boolean: TypeAlias = Annotated[bool, _Fixed("?")]
Int: TypeAlias = Annotated[int, _Fixed("i")]
Long: TypeAlias = Annotated[int, _Fixed("q")]
UString: TypeAlias = Annotated[str, _Variable(encode_ustring, decode_ustring, _PLAIN_USTRING)]
_NULLABLE: Final = _Variable(encode_nullable_ustring, decode_nullable_ustring, _PLAIN_NULLABLE)
NullableUString: TypeAlias = Annotated[str | None, _NULLABLE]
# A string of a request. Nobody makes one that is null, hence `str`; a server can be sent one and then reads None.
Text: TypeAlias = Annotated[str, _NULLABLE]
Buffer: TypeAlias = Annotated[bytes | None, _Variable(encode_buffer, decode_buffer, _PLAIN_BUFFER)]
Vector: TypeAlias = Annotated[Sequence[_T], _VectorOf()]
Texts: TypeAlias = Annotated[list[str], _Variable(_vector(encode_ustring, decode_ustring).encode, _decode_texts)]
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
    made._codecs = codecs  # type: ignore[attr-defined]
    made.encode = _make_encoder(cls.__name__, codecs)  # type: ignore[attr-defined]
    made.decode = staticmethod(_make_decoder(made, codecs))  # type: ignore[attr-defined]
    return made


def _codec(where: str, declared: Any) -> _Codec:
    if isinstance(declared, type) and issubclass(declared, Record):
        return _Nested(declared, declared.__dict__["_codecs"])
    for mark in getattr(declared, "__metadata__", ()):
        if isinstance(mark, _Fixed | _Variable):
            return mark
        if isinstance(mark, _VectorOf):
            (element,) = get_args(declared.__origin__)
            codec = _codec(where, element)
            if not isinstance(codec, _Fixed):
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


def _groups(codecs: list[tuple[str, _Codec]]) -> list[tuple[list[str], struct.Struct | _Variable | _Nested]]:
    """Join neighbouring fixed fields, so that a Stat is one struct and not eleven."""
    groups: list[tuple[list[str], struct.Struct | _Variable | _Nested]] = []
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


def _make_encoder(record_name: str, codecs: list[tuple[str, _Codec]]) -> Callable[[Any], bytes]:
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


def _make_decoder(cls: type[Any], codecs: list[tuple[str, _Codec]]) -> Decoder:
    """Write the decoder out: one struct for neighbouring numbers and the length behind them, inner records in place."""
    writer = _DecoderWriter(cls)
    writer.fields("self", codecs)
    writer.unpack()
    body = ["    " + line for line in writer.lines]
    lines = [
        "self = new(cls)",
        "try:",
        *(body or ["    pass"]),
        "except error:",
        f"    raise DecodeError(f'{cls.__name__}: the frame ends in a field, behind byte {{at}}') from None",
        "except UnicodeDecodeError:",
        f"    raise DecodeError(f'{cls.__name__}: a string that is not UTF-8, at byte {{at}}') from None",
        "return self, at",
    ]
    return _generate("decode", ["data", "at"], lines, writer.scope)


class _DecoderWriter:
    """Collects the lines of one decoder."""

    def __init__(self, cls: type[Any]) -> None:
        self.lines: list[str] = []
        self.scope: dict[str, Any] = {
            "cls": cls, "new": object.__new__, "error": struct.error, "DecodeError": DecodeError, "bad": _bad_length
        }  # fmt: skip
        self._targets: list[str] = []
        self._codes = ""

    def fields(self, owner: str, codecs: list[tuple[str, _Codec]]) -> None:
        for name, codec in codecs:
            target = f"{owner}.{name}"
            if isinstance(codec, _Fixed):
                self._targets.append(target)
                self._codes += codec.code
            elif isinstance(codec, _Nested):
                inner = self._name(codec.record)
                self.lines.append(f"{target} = v{inner} = new({inner})")
                self.fields(f"v{inner}", codec.codecs)
            elif codec.plain is not None:
                self._targets.append("size")
                self._codes += "i"
                self.unpack()
                self.lines += codec.plain.format(target=target).splitlines()
            else:
                self.unpack()
                self.lines.append(f"{target}, at = {self._name(codec.decode)}(data, at)")

    def unpack(self) -> None:
        if not self._targets:
            return
        fixed = struct.Struct(">" + self._codes)
        self.lines += [
            f"{', '.join(self._targets)}, = {self._name(fixed.unpack_from)}(data, at)",
            f"at += {fixed.size}",
        ]
        self._targets, self._codes = [], ""

    def _name(self, value: Any) -> str:
        name = f"x{len(self.scope)}"
        self.scope[name] = value
        return name


def _bad_length(size: int, at: int, data: bytes) -> DecodeError:
    return DecodeError(f"a length of {size} at byte {at - 4}, where {len(data) - at} bytes follow")


def _generate(name: str, parameters: list[str], lines: list[str], scope: dict[str, Any]) -> Callable[..., Any]:
    source = f"def {name}({', '.join(parameters)}):\n" + "\n".join("    " + line for line in lines)
    exec(source, scope)
    made: Callable[..., Any] = scope[name]
    return made
