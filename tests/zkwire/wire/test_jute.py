"""Jute: every record encoded and decoded, whole, cut at every byte and amid other bytes; bad lengths; declarations."""

import copy
import dataclasses
import inspect
import pickle
import struct
import sys
import threading
import tracemalloc
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, get_args, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkwire.wire import multi, primitives, records, requests
from zkwire.wire.jute import Record, frozen_record, record
from zkwire.wire.primitives import (
    Boolean,
    Buffer,
    DecodeError,
    Int,
    JavaText,
    Long,
    Names,
    NullableUString,
    Secret,
    Text,
    Texts,
    UString,
    Vector,
)
from zkwire.wire.records import ACL, Stat, WatcherEvent
from zkwire.wire.requests import ClientInfoRecord

RECORDS: list[type[Record]] = sorted(
    {
        value
        for module in (records, requests, multi)
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Record) and "_is_frozen" in vars(value)
    },
    key=lambda cls: cls.__name__,
)

AnyVector: Any = Vector  # mypy does not allow a type to be subscripted by a variable

PRIMITIVES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (Boolean, st.booleans()),
    (Int, st.integers(-(2**31), 2**31 - 1)),
    (Long, st.integers(-(2**63), 2**63 - 1)),
    (UString, st.text(max_size=20)),
    (Text, st.text(max_size=20)),
    (JavaText, st.text(max_size=20)),
    (NullableUString, st.none() | st.text(max_size=20)),
    (Buffer, st.none() | st.binary(max_size=20)),
    (Secret, st.none() | st.binary(max_size=20)),
    (Names, st.lists(st.text(max_size=8), max_size=5)),
    (Texts, st.lists(st.text(max_size=8), max_size=5)),
]


def values_of(declared: Any) -> st.SearchStrategy[Any]:
    """What a field may hold, by its declaration and independent of the codec."""
    if isinstance(declared, type) and issubclass(declared, Record):
        return instances(declared)
    for primitive, strategy in PRIMITIVES:
        if declared == primitive:
            return strategy
    for element in (ACL, ClientInfoRecord, Stat):
        if declared == AnyVector[element]:
            return st.lists(instances(element), max_size=3)
    raise AssertionError(f"no strategy for {declared!r}")


def instances(cls: type[Record]) -> st.SearchStrategy[Record]:
    hints = get_type_hints(cls, include_extras=True)
    return st.builds(cls, **{field.name: values_of(hints[field.name]) for field in dataclasses.fields(cls)})


# -- records of any fields, against an encoder that is written by hand --------------------------------------------


@record
class Inner(Record):
    number: Int
    stat: Stat
    name: UString
    acl: ACL


PLAIN: list[Any] = [declared for declared, _ in PRIMITIVES]
FIELDS = [*PLAIN, Stat, ACL, Inner, AnyVector[ACL], AnyVector[Stat]]
NUMBERS = {bool: ">?", int: ">i"}


def _encoded(declared: Any, value: Any) -> bytes:
    """The bytes of a field, by the rules of jute."""
    if isinstance(value, Record):
        hints = get_type_hints(type(value), include_extras=True)
        return b"".join(_encoded(hints[field.name], getattr(value, field.name)) for field in dataclasses.fields(value))
    if declared == Long:
        return struct.pack(">q", value)
    if isinstance(value, list):
        (element,) = get_args(get_args(declared)[0])
        return struct.pack(">i", len(value)) + b"".join(_encoded(element, each) for each in value)
    if isinstance(value, int):
        return struct.pack(NUMBERS[type(value)], value)
    if value is None:
        return b"\xff\xff\xff\xff"
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack(">i", len(raw)) + raw


def _declare(*fields: Any, frozen: bool = False) -> type[Record]:
    annotations = {f"field{number}": declared for number, declared in enumerate(fields)}
    made: Any = type("Made", (Record,), {"__annotations__": annotations})
    return (frozen_record if frozen else record)(made)


def _is_coded_by_hand_as_by_the_record(fields: list[Any], values: list[Any], *, frozen: bool, first: str) -> None:
    """`first` is what the new class is used for first: its codec is made then."""
    encoded = b"".join(_encoded(declared, value) for declared, value in zip(fields, values, strict=True))
    cls = _declare(*fields, frozen=frozen)
    if first == "decode":
        assert cls.decode(b"before" + encoded + b"after", 6)[1] == 6 + len(encoded)
    value = cls(*values)
    assert value.encode() == encoded
    assert cls.decode(b"before" + encoded + b"after", 6) == (value, 6 + len(encoded))
    assert cls.decode(encoded, 0) == (value, len(encoded))
    for size in {0, len(encoded) // 2, len(encoded) - 1} if encoded else ():
        with pytest.raises(DecodeError):
            cls.decode(encoded[:size], 0)


@given(st.lists(st.sampled_from(FIELDS), max_size=6), st.booleans(), st.sampled_from(["make", "decode"]), st.data())
def test_a_record_of_any_fields_is_as_by_hand(fields: list[Any], frozen: bool, first: str, data: st.DataObject) -> None:
    values = [data.draw(values_of(declared)) for declared in fields]
    _is_coded_by_hand_as_by_the_record(fields, values, frozen=frozen, first=first)


STAT = Stat(*range(11))
WORLD = ACL(31, "world", "anyone")
SAMPLES: list[tuple[Any, Any]] = [
    (Boolean, True),
    (Int, -2),
    (Long, 2**40),
    (UString, "é"),
    (Text, "/a"),
    (JavaText, "bob"),
    (NullableUString, None),
    (Buffer, b"\0\1"),
    (Secret, b"key"),
    (Names, ["", "a"]),
    (Texts, ["/b", ""]),
    (AnyVector[ACL], [WORLD]),
    (AnyVector[Stat], [STAT]),
    (ACL, WORLD),
    (Stat, STAT),
    (Inner, Inner(5, STAT, "in", WORLD)),
]


BESIDE = [*SAMPLES[1:4], *SAMPLES[5:6], *SAMPLES[9:10], *SAMPLES[-4:]]


@pytest.mark.parametrize("frozen", [False, True])
def test_any_field_alone_and_any_two_kinds_beside_each_other_are_coded_as_by_hand(frozen: bool) -> None:
    """One may end the group of fixed fields in which the other one is decoded."""
    for declared, value in SAMPLES:
        _is_coded_by_hand_as_by_the_record([declared], [value], frozen=frozen, first="make")
    for declared, value in BESIDE:
        fields = [field for other, _ in BESIDE for field in (declared, other)]
        values = [field for _, other in BESIDE for field in (value, other)]
        _is_coded_by_hand_as_by_the_record(fields, values, frozen=frozen, first="decode")


@pytest.mark.parametrize("declared", [UString, Text, JavaText, NullableUString, Buffer, Secret])
def test_a_length_is_minus_1_for_null_or_within_the_frame(declared: Any) -> None:
    cls, null = _declare(declared), "" if declared == UString else None

    def decode(length: int) -> tuple[Any, int]:
        made, end = cls.decode(struct.pack(">i", length) + b"four", 0)
        return made.field0, end

    four: Any = b"four" if declared in (Buffer, Secret) else "four"
    assert [decode(length) for length in (-1, 0, 3, 4)] == [(null, 4), (four[:0], 4), (four[:3], 7), (four, 8)]
    for length in (-(2**31), -2, 5, 2**31 - 1):
        with pytest.raises(DecodeError):
            decode(length)
    for size in range(4):
        with pytest.raises(DecodeError):
            cls.decode(bytes(size), 0)


def test_only_a_string_in_a_reply_must_be_utf8() -> None:
    for declared in (Text, JavaText, NullableUString):
        assert _declare(declared).decode(b"\0\0\0\2a\xff", 0)[0].field0 == "a\ufffd"


@pytest.mark.parametrize("frozen", [False, True])
def test_each_method_of_a_record_is_made_when_it_is_first_called(frozen: bool) -> None:
    """A program pays for no codec that it does not use."""
    cls = _declare(Int, frozen=frozen)
    uses: dict[str, Callable[[], object]] = {
        "__init__": lambda: cls(1),
        "encode": lambda: cls(1).encode(),
        "decode": lambda: cls.decode(bytes(4), 0),
    }
    for made, use in uses.items():
        assert made not in vars(cls)
        use()
        assert made in vars(cls)


def test_a_frozen_record_can_neither_be_changed_nor_lose_a_field() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError, match="'perms'"):
        WORLD.perms = 1  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError, match="'perms'"):
        del WORLD.perms
    changed: Any = WORLD
    assert dataclasses.replace(changed, perms=1) == ACL(1, "world", "anyone") != WORLD
    assert hash(WORLD) == hash(ACL(31, "world", "anyone")) != hash(ACL(1, "world", "anyone"))


# -- the primitive types --------------------------------------------------------------------------------------


OneFlag = _declare(Boolean)
OneString = _declare(UString)
OneBuffer = _declare(Buffer)
SomeNames = _declare(Names)
SomeAcls = _declare(Vector[ACL])
Several = _declare(Texts)


def test_any_byte_but_zero_is_true() -> None:
    assert [OneFlag.decode(bytes([byte]), 0)[0].field0 for byte in range(256)] == [False] + [True] * 255


@pytest.mark.parametrize("count", [-1, -2, -(2**31)])
@pytest.mark.parametrize("cls", [SomeNames, SomeAcls])
def test_a_vector_of_a_negative_count_reads_as_empty(cls: type[Record], count: int) -> None:
    assert cls.decode(struct.pack(">i", count), 0) == (cls([]), 4)


def _as_java_writes(text: str) -> bytes:
    """Encode `text` as a Java server does: each half of a surrogate pair by itself."""
    units = text.encode("utf-16-be", "surrogatepass")
    halves = (units[at : at + 2].decode("utf-16-be", "surrogatepass") for at in range(0, len(units), 2))
    return b"".join(half.encode("utf-8", "surrogatepass") for half in halves)


@given(st.text())
def test_an_id_that_a_java_server_writes_is_read_without_loss(text: str) -> None:
    encoded = _as_java_writes(text)
    data = struct.pack(">i", len(encoded)) + encoded
    assert primitives.decode_java_string(data, 0) == (text, len(data))
    own = primitives.encode_ustring(text)  # as we send it: UTF-8, which is what servers read
    assert primitives.decode_java_string(own, 0) == (text, len(own))


@pytest.mark.parametrize(
    "encoded", [b"a\xed\xa0\xbd", b"a\xed\xb8\x80\xed\xa0\xbd", b"a\xff"], ids=["one half", "swapped", "no UTF-8"]
)
def test_an_id_that_is_no_text_is_read_with_replacement_characters(encoded: bytes) -> None:
    text, end = primitives.decode_java_string(struct.pack(">i", len(encoded)) + encoded, 0)
    assert text is not None
    assert (text.strip("\ufffd"), end) == ("a", 4 + len(encoded))


@pytest.mark.parametrize("bad", [b"\xed\xa0\xbd\xed\xb8\x80", b"\xff"], ids=["pairs", "no UTF-8"])
def test_a_long_id_that_is_not_utf8_is_a_decode_error_since_decoding_it_takes_seconds(bad: bytes) -> None:
    longest = bad + bytes(4096 - len(bad))
    primitives.decode_java_string(struct.pack(">i", 4096) + longest, 0)
    with pytest.raises(DecodeError, match="4097 bytes that is not UTF-8, before byte 4101"):
        primitives.decode_java_string(struct.pack(">i", 4097) + longest + b"a", 0)


@pytest.mark.parametrize("hexadecimal", ["ffffffff", "00000001 ffffffff", "00000002 00000000 ffffffff", "00000001"])
@pytest.mark.parametrize("cls", [Several, SomeNames])
def test_a_null_vector_of_texts_or_a_null_in_one_is_a_decode_error(cls: type[Record], hexadecimal: str) -> None:
    if cls is Several or hexadecimal != "ffffffff":
        with pytest.raises(DecodeError):
            cls.decode(bytes.fromhex(hexadecimal), 0)


@pytest.mark.parametrize(
    ("hexadecimal", "paths"), [("00000000", []), ("fffffffe", []), ("00000002 00000000 00000002 2fff", ["", "/\ufffd"])]
)
def test_a_vector_of_texts_is_read_as_the_server_reads_it(hexadecimal: str, paths: list[str]) -> None:
    data = bytes.fromhex(hexadecimal)
    assert Several.decode(data, 0) == (Several(paths), len(data))


@pytest.mark.parametrize("raw", [b"\xff", b"\xc3", b"\xed\xa0\x80", b"a\x80"])
@pytest.mark.parametrize("prefix", [b"", b"\0\0\0\1"], ids=["string", "names"])
def test_a_string_that_is_not_utf8_is_a_decode_error(prefix: bytes, raw: bytes) -> None:
    cls = SomeNames if prefix else OneString
    with pytest.raises(DecodeError, match="UTF-8"):
        cls.decode(prefix + struct.pack(">i", len(raw)) + raw, 0)


def _is_refused_without_allocating(cls: type[Record], data: bytes, match: str) -> None:
    def decode() -> None:
        with pytest.raises(DecodeError, match=match):
            cls.decode(data, 0)

    decode()  # the first call also allocates what pytest needs once
    tracemalloc.start()
    try:
        decode()
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("length", [-2, -(2**31), 5, 2**20, 2**31 - 1])
@pytest.mark.parametrize("cls", [OneString, OneBuffer])
def test_a_length_beyond_the_frame_is_refused_without_allocating(cls: type[Record], length: int) -> None:
    _is_refused_without_allocating(cls, struct.pack(">i", length) + b"four", str(length))


@pytest.mark.parametrize("count", [5, 2**20, 2**31 - 1])
@pytest.mark.parametrize("body", [b"", b"\0\0\0\0"], ids=["nothing", "one"])
@pytest.mark.parametrize("cls", [SomeNames, SomeAcls])
def test_a_count_beyond_the_frame_is_refused_without_allocating(cls: type[Record], body: bytes, count: int) -> None:
    _is_refused_without_allocating(cls, struct.pack(">i", count) + body, "count|vector")


def test_a_count_of_elements_that_take_no_bytes_cannot_grow_a_list_without_bound() -> None:
    with pytest.raises(DecodeError, match=f"a count of {2**20} "):
        _declare(AnyVector[_declare()]).decode(struct.pack(">i", 2**20), 0)


# -- declarations and misuse ----------------------------------------------------------------------------------


class Plain:
    """A class that is no record."""


@pytest.mark.parametrize("declared", [int, AnyVector[float], AnyVector[Int], Plain, Sequence[str]])
def test_a_field_that_is_not_a_jute_type_is_refused_when_the_class_is_first_used(declared: Any) -> None:
    wrong: type[Record] = record(type("Wrong", (Record,), {"__annotations__": {"first": Int, "second": declared}}))
    with pytest.raises(TypeError, match=r"Wrong\.second: .* is not a jute type"):
        wrong(1, 2)


def test_an_undeclared_record_cannot_be_coded() -> None:
    class Undeclared(Record):
        pass

    with pytest.raises(TypeError, match="Undeclared is not declared with @record"):
        Undeclared()
    assert not dataclasses.is_dataclass(Undeclared)
    with pytest.raises(TypeError, match="@record"):
        Undeclared.decode(b"", 0)


@pytest.mark.parametrize("is_subclass", [False, True])
@pytest.mark.parametrize("use", ["make", "encode", "decode", "fields"])
def test_a_record_or_a_plain_subclass_of_it_is_completed_by_any_first_use(use: str, is_subclass: bool) -> None:
    declared: Any = _declare(Int)
    cls: Any = type("Plain", (declared,), {}) if is_subclass else declared
    if use == "decode":
        assert cls.decode(b"\0\0\0\3", 0) == (declared(3), 4)
    elif use == "encode":
        made = object.__new__(cls)  # as a decoder makes it
        made.field0 = 3
        assert made.encode() == b"\0\0\0\3"
    elif use == "fields":
        twin = dataclasses.make_dataclass("Twin", [(field.name, field.type) for field in dataclasses.fields(cls)])
        assert inspect.signature(cls) == inspect.signature(twin) != inspect.signature(Record)
        assert not cls.__dataclass_params__.frozen
    else:
        assert cls(field0=3).encode() == b"\0\0\0\3"


def test_a_secret_is_not_printed() -> None:
    @record
    class Login(Record):
        name: UString
        password: Secret

    assert repr(Login("bob", b"hunter2")).endswith("Login(name='bob')")
    assert Login("bob", b"a") != Login("bob", b"b")


@pytest.mark.parametrize("value", [ACL(31, "world", "anyone"), Stat(*range(11))], ids=["frozen", "plain"])
def test_a_record_can_be_copied_and_pickled(value: Record) -> None:
    assert copy.copy(value) == copy.deepcopy(value) == pickle.loads(pickle.dumps(value)) == value


class Counted:
    """What an ACL is, and how often it was encoded."""

    scheme = "world"
    id = "anyone"

    def __init__(self) -> None:
        self.times = 0

    @property
    def perms(self) -> int:
        self.times += 1
        return 31


def test_tuples_of_frozen_records_are_encoded_once_while_few_are_in_use_and_lists_each_time() -> None:
    cls = _declare(AnyVector[ACL])
    tuples, lists = [(Counted(),) for _ in range(50)], [[Counted()] for _ in range(2)]
    for acl in [*tuples, *lists] * 3:
        assert cls(acl).encode() == b"\0\0\0\1" + WORLD.encode()
    assert [acl[0].times for acl in [*tuples, *lists]] == [1] * 50 + [3] * 2


def test_the_memory_of_encoded_tuples_is_bounded() -> None:
    acls = [(ACL(31, "digest", f"{number:01000}"),) for number in range(1000)]
    tracemalloc.start()
    try:
        for acl in acls:
            SomeAcls(acl).encode()
        assert tracemalloc.get_traced_memory()[0] < 300_000
    finally:
        tracemalloc.stop()


def test_a_vector_of_records_that_may_change_is_encoded_each_time() -> None:
    stat = Stat(*range(11))
    value = _declare(AnyVector[Stat])((stat,))
    before = value.encode()
    stat.version = 77
    assert value.encode() == b"\0\0\0\1" + stat.encode() != before


def test_threads_may_use_a_record_first_at_the_same_time(request: pytest.FixtureRequest) -> None:
    request.addfinalizer(partial(sys.setswitchinterval, sys.getswitchinterval()))
    sys.setswitchinterval(1e-6)  # a switch of threads at almost every instruction
    for frozen in [False, True] * 25:
        made: Any = _declare(Int, UString, frozen=frozen)
        start = threading.Barrier(4)

        def use(value: int, made: Any = made, start: threading.Barrier = start) -> bool:
            start.wait()
            return made.decode(made(value, "b").encode(), 0) == (made(value, "b"), 9)  # type: ignore[no-any-return]

        with ThreadPoolExecutor(4) as threads:
            assert all(threads.map(use, range(4)))


def test_a_record_has_slots_and_takes_no_other_attribute() -> None:
    for cls in RECORDS:
        made: Record = object.__new__(cls)
        assert not hasattr(made, "__dict__"), cls
        # Python raises TypeError for a frozen dataclass with slots.
        with pytest.raises((AttributeError, TypeError)):
            made.surprise = 1  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "value",
    [
        ACL(2**31, "world", "anyone"),
        ACL("31", "world", "anyone"),  # type: ignore[arg-type]
        ACL(31, b"world", "anyone"),  # type: ignore[arg-type]
        WatcherEvent(1, 3, None),  # type: ignore[arg-type]
        ACL(31, "world", "\ud800"),
        SomeAcls([ACL(-(2**31) - 1, "world", "anyone")]),
        SomeAcls(["world"]),
        SomeNames([b"a"]),
        SomeNames(None),
        OneBuffer("text"),
    ],
    ids=repr,
)
def test_a_value_that_does_not_fit_its_field_is_the_callers_mistake(value: Record) -> None:
    with pytest.raises((ValueError, TypeError, AttributeError)):
        value.encode()
