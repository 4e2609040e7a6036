"""Jute, ZooKeeper's serialisation: `@record`, which generates a class's codec.  Its types are in primitives.py.

A record is encoded as its fields in the declared order, big-endian, without tags, lengths or padding:

    @record
    class GetDataRequest(Record):
        path: UString
        watch: Boolean

A decoder takes the bytes of one frame and an offset, and returns the value and the offset after it.  It raises
`DecodeError` for bytes that are too short or hold an impossible length, and never reads beyond the frame.  It ignores
what follows the last field: that is how the protocol lets newer servers append fields.

Each encoder and decoder is Python source, generated and compiled once, when it is first used.  Otherwise every reply
would pay for a loop over the fields of its type, a look-up of each field's codec and a call of it.  For
GetDataReply, which is a Buffer and a Stat, the generated decoder is in essence

    def decode(data, at):
        self = new(GetDataReply)
        size, = unpack_int(data, at)                                # the buffer's length
        at += 4
        ...                                                         # check `size`, self.data = data[at:at + size]
        self.stat = stat = new(Stat)                                # the inner record, without a call to its decoder
        stat.czxid, stat.mzxid, ... = unpack_stat(data, at)         # one struct for all eleven numbers
        at += 68
        return self, at
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from functools import partial
from inspect import get_annotations
from typing import Any, ClassVar, NoReturn, TypeAlias, TypeVar, dataclass_transform, get_args

from zkwire.wire import primitives

# The codec of a field: an inner record is coded by its class.
_Codec: TypeAlias = primitives.Fixed | primitives.Variable | type[Any]

_T = TypeVar("_T")


class _FieldsOnFirstUse:
    """Lets the `dataclasses` module read the fields of a record, for example in `replace`."""

    def __get__(self, _: Record | None, used: type[Record]) -> Any:
        from dataclasses import make_dataclass  # most programs never come here

        cls = _described(used, AttributeError)
        twin: Any = make_dataclass(cls.__name__, cls._types.items(), frozen=cls._is_frozen)
        _initialiser(cls)  # what `inspect.signature` shows
        cls.__dataclass_params__ = twin.__dataclass_params__
        cls.__dataclass_fields__ = twin.__dataclass_fields__
        return twin.__dataclass_fields__


class Record:
    """The base of all records: `@record` makes a subclass what a slotted dataclass is, with an encoder and a decoder.

    The three methods here are placeholders.  A client sends some records and receives others, and a program may import
    zkwire without ever connecting: so a class gets its own method when that method is first called.
    """

    __slots__ = ()
    __dataclass_fields__: ClassVar[Any] = _FieldsOnFirstUse()

    def __init__(self, *values: Any, **named: Any) -> None:
        _initialiser(type(self))
        self.__init__(*values, **named)  # type: ignore[misc]

    @classmethod
    def decode(cls, data: bytes, at: int) -> tuple[Any, int]:
        """Return the record that begins at `at`, and the offset after it.

        Raises:
            DecodeError: If the bytes do not fit the declaration.
        """
        return _decoder(cls)(data, at)

    def encode(self) -> bytes:
        """Return the record's bytes.

        Raises:
            ValueError: If a number does not fit its field.
        """
        _encoder(type(self))
        return self.encode()

    def __reduce__(self) -> tuple[type[Record], tuple[Any, ...]]:
        """Have a record copied and pickled by its fields, also one whose attributes cannot be set."""
        return type(self), tuple(getattr(self, name) for name in _field_names(type(self)))


@dataclass_transform()
def record(cls: type[_T]) -> type[_T]:
    """Make `cls`, a subclass of Record with annotated fields, what a slotted dataclass is, with `encode` and `decode`.

    Its methods are made when one of them is first called; if a field's type is not a jute type, TypeError is raised
    then.
    """
    return _declared(cls, frozen=False)


@dataclass_transform(frozen_default=True)
def frozen_record(cls: type[_T]) -> type[_T]:
    """Do what `record` does, for a class with immutable and hashable objects, which are slower to decode."""
    return _declared(cls, frozen=True)


def _declared(cls: type[_T], *, frozen: bool) -> type[_T]:
    """Return `cls` with slots, which must be known when a class is made, and with what all records have in common."""
    common: dict[str, Any] = {"__repr__": _repr, "__eq__": _equals, "__hash__": _hash if frozen else None}
    if frozen:
        common |= {"__setattr__": _refuse, "__delattr__": _refuse}
    attributes = {name: value for name, value in vars(cls).items() if name not in ("__dict__", "__weakref__")}
    attributes["__slots__"] = tuple(get_annotations(cls))
    attributes = common | attributes | {"_is_frozen": frozen, "__qualname__": cls.__qualname__}
    made: Any = type(cls.__name__, cls.__bases__, attributes)
    made.__match_args__ = tuple(_field_names(made))  # type: ignore[misc]
    return made  # type: ignore[no-any-return]


def _described(used: type[Record], misuse: type[Exception] = TypeError) -> type[Any]:
    """Return the class that `@record` has declared, with the types and the codecs of its fields.

    Records are shared by the event loops of all threads.  Two threads may do this to one class at the same time, or
    make one of its methods: each then sets attributes that do the same.  `_codecs`, which says that all is there, comes
    last.

    Args:
        used: The class, or a plain subclass of it.
        misuse: The error to raise if `used` is not declared with `@record`.

    Raises:
        TypeError: If the type of a field is not a jute type.
    """
    cls: type[Any] | None = next((base for base in used.__mro__ if "_is_frozen" in base.__dict__), None)
    if cls is None:
        raise misuse(f"{used.__name__} is not declared with @record")
    if "_codecs" not in cls.__dict__:
        bases = [base for base in reversed(cls.__mro__) if "_is_frozen" in base.__dict__]
        fields = {name: kind for base in bases for name, kind in get_annotations(base, eval_str=True).items()}
        cls._types = fields
        cls._shown = [name for name, kind in fields.items() if kind != primitives.Secret]
        cls._codecs = [(name, _codec(f"{cls.__name__}.{name}", kind)) for name, kind in fields.items()]
    return cls


def first_field(cls: type[Record]) -> tuple[str, object]:
    """Return the name of the first field and its codec; two empty values for a record without fields."""
    return next(iter(_described(cls)._codecs), ("", None))


def _repr(self: Any) -> str:
    """Return what `dataclass` would, without the hidden fields."""
    shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self._shown)
    return f"{type(self).__qualname__}({shown})"


def _values(self: Any) -> tuple[Any, ...]:
    return tuple([getattr(self, name) for name in self.__match_args__])


def _equals(self: Any, other: Any) -> bool:
    return _values(self) == _values(other) if other.__class__ is self.__class__ else NotImplemented


def _hash(self: Any) -> int:
    return hash(_values(self))


def _refuse(self: Any, name: str, *_: object) -> NoReturn:
    from dataclasses import FrozenInstanceError  # what a frozen dataclass raises; most programs never come here

    raise FrozenInstanceError(f"cannot assign to or delete field {name!r}")


def _field_names(cls: type[Record]) -> list[str]:
    """Return the names of all fields; inherited ones come first."""
    return [name for base in reversed(cls.__mro__) for name in base.__dict__.get("__slots__", ())]


def _codec(where: str, declared: Any) -> _Codec:
    if isinstance(declared, type) and issubclass(declared, Record):
        return _described(declared)
    for annotation in getattr(declared, "__metadata__", ()):
        if isinstance(annotation, primitives.Fixed | primitives.Variable):
            return annotation
        if isinstance(annotation, primitives.VectorOf):
            (element,) = get_args(declared.__origin__)
            codec = _codec(where, element)
            if isinstance(codec, type):
                encode = primitives.vector_encoder(_encoder(codec))
                if codec._is_frozen:
                    encode = primitives.remembering(encode)
                return primitives.VectorCodec(encode, primitives.vector_decoder(partial(_decode, codec)))
    raise TypeError(f"{where}: {declared!r} is not a jute type")


def _make_init(cls: type[Any]) -> Callable[..., None]:
    assigned = "put(self, {0!r}, {0})" if cls._is_frozen else "self.{0} = {0}"
    lines = [assigned.format(name) for name in cls._types] or ["pass"]
    made = _generate("__init__", ["self", *cls._types], lines, {"put": object.__setattr__})
    made.__annotations__ = {**cls._types, "return": None}
    return made


def prepare(sent: Iterable[type[Record]], received: Iterable[type[Record]]) -> None:
    """Make the methods of these records now, when there is time, rather than at their first use.

    Args:
        sent: Records that will be made and encoded.
        received: Records that will be decoded.
    """
    for cls in sent:
        _initialiser(cls)
        _encoder(cls)
    for cls in received:
        _decoder(cls)


def _initialiser(used: type[Record]) -> None:
    """Give a record its `__init__`, if it is missing."""
    cls = _described(used)
    if "__init__" not in cls.__dict__:
        cls.__init__ = _make_init(cls)


def _encoder(used: type[Record]) -> primitives.Encoder:
    """Return the encoder of a record, which is made if it is missing."""
    cls = _described(used)
    if "encode" not in cls.__dict__:
        cls.encode = _make_encoder(cls.__name__, cls._codecs)
    return cls.encode  # type: ignore[no-any-return]


def _decoder(used: type[Record]) -> primitives.Decoder:
    """Return the decoder of a record, which is made if it is missing."""
    cls = _described(used)
    if "decode" not in cls.__dict__:
        cls.decode = staticmethod(_make_decoder(cls, cls._codecs))
    return cls.decode  # type: ignore[no-any-return]


def _decode(cls: type[Any], data: bytes, at: int) -> tuple[Any, int]:
    """Decode an element of a vector, by a decoder that may not be made yet: few clients read vectors of records."""
    return cls.decode(data, at)  # type: ignore[no-any-return]


def _make_encoder(record_name: str, codecs: list[tuple[str, _Codec]]) -> Callable[[Any], bytes]:
    """Generate an encoder, in which one struct packs all fixed fields that are next to each other."""
    scope: dict[str, Any] = {"error": struct.error, "pack_int": primitives.INT.pack}
    lines = ["try:"]
    terms: list[str] = []
    fixed: list[str] = []
    codes = ""
    for number, (name, codec) in enumerate([*codecs, ("", None)]):  # None: after the last field
        if isinstance(codec, primitives.Fixed):
            fixed.append(f"self.{name}")
            codes += codec.code
            continue
        if fixed:
            scope[f"fixed{number}"] = struct.Struct(">" + codes).pack
            terms.append(f"fixed{number}({', '.join(fixed)})")
            fixed, codes = [], ""
        if codec is not None and isinstance(codec.encode, str):
            source = codec.encode.format(source=f"self.{name}", target=f"part{number}")
            lines += ["    " + line for line in source.splitlines()]
            terms.append(f"part{number}")
        elif codec is not None:
            scope[f"pack{number}"] = codec.encode
            terms.append(f"pack{number}(self.{name})")
    lines += [
        f"    return {' + '.join(terms) or repr(b'')}",
        "except error as wrong:",  # a number that does not fit its field is a mistake of the caller
        f"    raise ValueError(f'{record_name}: {{wrong}}') from None",
    ]
    return _generate("encode", ["self"], lines, scope)


def _make_decoder(cls: type[Any], codecs: list[tuple[str, _Codec]]) -> primitives.Decoder:
    """Generate the decoder of `cls`; the module's docstring shows one.

    One struct reads all fixed fields that are next to each other, together with the length of the variable field after
    them: `targets` and `codes` collect them.
    """
    scope: dict[str, Any] = {
        "cls": cls,
        "new": object.__new__,
        "error": struct.error,
        "DecodeError": primitives.DecodeError,
        "bad": _bad_length,
    }
    body: list[str] = []
    targets: list[str] = []
    codes: list[str] = []

    def name_of(value: Any) -> str:
        name = f"x{len(scope)}"
        scope[name] = value
        return name

    def flush() -> None:
        if targets:
            fixed = struct.Struct(">" + "".join(codes))
            body.append(f"{', '.join(targets)}, = {name_of(fixed.unpack_from)}(data, at)")
            body.append(f"at += {fixed.size}")
            targets.clear()
            codes.clear()

    def add(prefix: str, codecs: list[tuple[str, _Codec]]) -> None:
        """Add the lines that decode these fields into what is called `prefix` and the field's name."""
        for name, codec in codecs:
            target = prefix + name
            if isinstance(codec, primitives.Fixed):
                targets.append(target)
                codes.append(codec.code)
            elif isinstance(codec, type) and not codec._is_frozen:
                inner = name_of(codec)
                body.append(f"{target} = v{inner} = new({inner})")
                add(f"v{inner}.", codec._codecs)
            elif isinstance(codec.decode, str):
                targets.append("size")
                codes.append("i")
                flush()
                body.extend(codec.decode.format(target=target).splitlines())
            else:
                flush()
                body.append(f"{target}, at = {name_of(codec.decode)}(data, at)")

    # The fields of a frozen record cannot be set one by one: they are variables first.
    add("field_" if cls._is_frozen else "self.", codecs)
    flush()
    lines = [
        *([] if cls._is_frozen else ["self = new(cls)"]),
        "try:",
        *(["    " + line for line in body] or ["    pass"]),
        "except error:",
        f"    raise DecodeError(f'{cls.__name__}: the frame ends in a field, after byte {{at}}') from None",
        "except UnicodeDecodeError:",
        f"    raise DecodeError(f'{cls.__name__}: a string that is not UTF-8, at byte {{at}}') from None",
        f"return cls({', '.join(f'field_{name}' for name, _ in codecs)}), at" if cls._is_frozen else "return self, at",
    ]
    return _generate("decode", ["data", "at"], lines, scope)


def _bad_length(size: int, at: int, data: bytes) -> primitives.DecodeError:
    return primitives.DecodeError(f"a length of {size} at byte {at - 4}, where {len(data) - at} bytes follow")


def _generate(name: str, parameters: list[str], lines: list[str], scope: dict[str, Any]) -> Callable[..., Any]:
    source = f"def {name}({', '.join(parameters)}):\n" + "\n".join("    " + line for line in lines)
    exec(source, scope)
    made: Callable[..., Any] = scope[name]
    return made
