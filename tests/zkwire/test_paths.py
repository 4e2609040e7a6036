"""Paths: validation, joining and splitting, the chroot, and sequence numbers."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from zkwire import paths

# The characters that a server refuses since 3.5; Java spells those above U+FFFF with surrogates.
FORBIDDEN = [(0x01, 0x1F), (0x7F, 0x9F), (0xD800, 0xF8FF), (0xFFF0, 0xFFFF), (0x10000, 0x10FFFF)]
EDGES = [*(edge for pair in FORBIDDEN for edge in pair), 0x85, 0xE000, 0xFFFD, 0x1F512]
ALLOWED_EDGES = [0x20, 0x7E, 0xA0, 0xD7FF, 0xF900, 0xFFEF, 0xE9, 0x4E2D]


def _is_allowed(character: str) -> bool:
    return character not in "/\0" and not any(low <= ord(character) <= high for low, high in FORBIDDEN)


name_characters = st.characters(exclude_categories=["Cs", "Cc", "Co"], exclude_characters="/", max_codepoint=0xFFEF)
names = st.text(name_characters, min_size=1, max_size=8).filter(lambda name: name not in (".", ".."))
good_paths = st.lists(names, max_size=5).map(lambda parts: "/" + "/".join(parts))
node_paths = good_paths.filter(lambda path: path != "/")
chroots = st.one_of(st.just(""), node_paths)
int32 = st.integers(-(2**31), 2**31 - 1)


def _says(path: str, rule: str) -> str:
    return rf"(?s)\Abad path {re.escape(repr(path))}: .*{rule}"


def _java_validate(path: str) -> bool:
    """Java's PathUtils.validatePath, character by character, as a second opinion."""
    if not path or path[0] != "/":
        return False
    if path == "/":
        return True
    if path[-1] == "/":
        return False
    last = "/"
    for at, c in enumerate(path[1:], 1):
        if c == "\0" or (c == "/" and last == "/"):
            return False
        ends = at + 1 == len(path) or path[at + 1] == "/"
        if c == "." and last == "." and path[at - 2] == "/" and ends:
            return False
        if c == "." and last == "/" and ends:
            return False
        if c != "/" and not _is_allowed(c):
            return False
        last = c
    return True


# -- validation -----------------------------------------------------------------------------------------------


@given(good_paths)
@example("/")
@example("/.a")
@example("/a.")
@example("/...")
@example("/a..b")
@example("/a/.../b")
@example("/with space")
@example("/zookeeper")
def test_a_valid_path_is_returned_unchanged(path: str) -> None:
    assert paths.validate(path) is path
    assert paths.validate(path, sequential=True) is path


@given(st.text(st.sampled_from("/.aA9-_\n\0\x1f é\ud800\ufff0\U00010000"), max_size=10))
def test_exactly_the_paths_that_java_accepts_are_accepted(path: str) -> None:
    for sequential in (False, True):
        if _java_validate(path + "1" if sequential else path):
            assert paths.validate(path, sequential=sequential) == path
        else:
            with pytest.raises(ValueError, match=_says(path, "")):
                paths.validate(path, sequential=sequential)


@pytest.mark.parametrize("value", [None, b"/a", 1, ["/a"], object])
@pytest.mark.parametrize("sequential", [False, True])
def test_a_path_that_is_not_a_str_is_a_type_error_that_shows_the_value(value: object, sequential: bool) -> None:
    with pytest.raises(TypeError, match=re.escape(repr(value))):
        paths.validate(value, sequential=sequential)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("path", "rule"),
    [
        ("", "start with '/'"),
        ("a/b", "start with '/'"),
        ("/a/", "end with '/'"),
        ("/a//b", "empty name"),
        ("//a", "empty name"),
        ("/a/./b", "'.'"),
        ("/a/..", "'..'"),
        ("/a\0b", "NUL"),
    ],
)
def test_the_error_of_a_bad_path_names_the_rule(path: str, rule: str) -> None:
    with pytest.raises(ValueError, match=_says(path, re.escape(rule))):
        paths.validate(path)


@pytest.mark.parametrize("code", EDGES)
def test_the_edges_of_the_forbidden_ranges_are_forbidden(code: int) -> None:
    with pytest.raises(ValueError, match=rf"U\+{code:04X}\Z"):
        paths.validate(f"/a{chr(code)}b")


@pytest.mark.parametrize("code", ALLOWED_EDGES)
def test_the_characters_next_to_the_forbidden_ranges_are_allowed(code: int) -> None:
    assert paths.validate(f"/{chr(code)}") == f"/{chr(code)}"


# -- joining and splitting ------------------------------------------------------------------------------------


@given(good_paths, names)
def test_split_undoes_join(parent: str, name: str) -> None:
    path = paths.join(parent, name)
    assert paths.validate(path) == path
    assert paths.split(path) == (parent, name)


@given(node_paths)
def test_ancestors_go_from_just_below_the_root_down_to_the_path_itself(path: str) -> None:
    found = paths.ancestors(path)
    assert found[-1] == path
    assert len(found) == path.count("/")
    assert [paths.split(each)[0] for each in found] == ["/", *found[:-1]]
    assert (paths.ancestors("/"), paths.split("/")) == ([], ("/", ""))


# -- the chroot -----------------------------------------------------------------------------------------------


@given(chroots, good_paths)
def test_stripping_the_chroot_undoes_adding_it(chroot: str, path: str) -> None:
    there = paths.add_chroot(chroot, path)
    assert paths.validate(there) == there
    assert there == chroot or there.startswith(chroot + "/")
    assert paths.strip_chroot(chroot, there) == path


@given(node_paths, names)
def test_a_path_beside_the_chroot_stays_as_it_is(chroot: str, name: str) -> None:
    assert paths.strip_chroot(chroot, chroot + name) == chroot + name
    assert paths.strip_chroot(chroot + "/" + name, chroot) == chroot


# -- sequence numbers -----------------------------------------------------------------------------------------


@given(st.text(name_characters, max_size=12).map(lambda text: text.rstrip("-") + "-"), int32)
@example("lock-", -(10**9) + 1)
@example("lock-", -(10**9))
def test_the_number_is_read_across_the_whole_range(prefix: str, number: int) -> None:
    """Pitfall 5: numbers past 2**31 turn negative, and the minus sign is part of them."""
    assert paths.sequence(f"{prefix}{number:010d}") == number


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("_c_b9f3e2-lock-0000000007", 7),
        ("b9f3e2__lock__0000000007", 7),
        ("0000000007", 7),
        ("lock-2147483647", 2147483647),
        ("lock--2147483648", -2147483648),
        ("lock-2147483648", -2147483648),  # no counter prints this many without a minus sign
        ("lock--2147483647", -2147483647),
        ("lock--000000001", -1),
        ("__lock__-000000001", -1),
    ],
)
def test_names_as_servers_print_them(name: str, number: int) -> None:
    """Pitfall 5"""
    assert paths.sequence(name) == number


@pytest.mark.parametrize(
    "name",
    [
        "",
        "lock",
        "lock-",
        "lock-123",
        "000000007",
        "lock-00000000x7",
        "lock-0000000007x",
        "lock-+000000007",
        "lock- 000000007",
        "lock-00000_0007",
        "lock-" + "\u0660" * 10,  # Arabic digits are digits to str.isdigit
        "lock-²²²²²²²²²²",
        "lock-9999999999",
        "lock--9999999999",
        "x2147483648",  # one more than the counter can hold, and no minus sign before it
        "lock2147483649",
        "--------------",
    ],
)
def test_a_name_without_a_number_has_none(name: str) -> None:
    """Pitfall 5"""
    assert paths.sequence(name) is None


# -- serial-number arithmetic ---------------------------------------------------------------------------------


def _wrapped(number: int) -> int:
    return (number + 2**31) % 2**32 - 2**31


@given(int32, st.integers(-(2**31), 2**31 - 1))
@example(2**31 - 1, 1)
@example(-(2**31), -1)
def test_the_distance_is_the_count_even_across_the_overflow(start: int, count: int) -> None:
    """Pitfall 5"""
    assert paths.sequence_distance(_wrapped(start + count), start) == count
