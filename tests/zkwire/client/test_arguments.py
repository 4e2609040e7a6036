"""Checks of arguments: the mode and the ttl of a create, and ACL entries with a password's hash."""

import hashlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkwire.client import arguments
from zkwire.client.arguments import checked_acl, checked_version, creation, digest_acl, server_path
from zkwire.wire.records import ACL, OPEN_ACL, Perms
from zkwire.wire.requests import Create2Request, CreateContainerRequest, CreateFlags, CreateRequest, CreateTTLRequest

MOST_MILLISECONDS = 2**40 - 1


@given(st.integers(1, MOST_MILLISECONDS), st.booleans())
def test_a_ttl_is_sent_in_milliseconds(milliseconds: int, sequential: bool) -> None:
    ttl = milliseconds / 1000
    request = creation("/app", "/a", b"data", ttl=ttl, sequential=sequential)
    assert isinstance(request, CreateTTLRequest)
    assert (request.path, request.data, request.ttl) == ("/app/a", b"data", milliseconds)
    assert request.flags == (6 if sequential else 5)
    assert creation("/app", "/a", b"data", ttl=ttl, sequential=sequential, with_stat=True) == request


@pytest.mark.parametrize("options", [{"container": True}, {"ephemeral": True}, {"ephemeral": True, "sequential": True}])
def test_a_ttl_node_cannot_be_of_another_kind(options: Any) -> None:
    with pytest.raises(ValueError, match="/a: "):
        creation("", "/a", b"", ttl=5.0, **options)


def test_creates_without_a_ttl_use_the_other_requests() -> None:
    plain = creation("", "/a", b"", ephemeral=True, sequential=True)
    assert isinstance(plain, CreateRequest)
    assert plain.flags == CreateFlags.EPHEMERAL | CreateFlags.SEQUENTIAL
    with_stat = creation("", "/a", b"", ephemeral=True, sequential=True, with_stat=True)
    assert isinstance(with_stat, Create2Request)
    assert with_stat.flags == plain.flags
    assert isinstance(creation("", "/a", b"", container=True), CreateContainerRequest)


@pytest.mark.parametrize(
    ("path", "sequential", "full"),
    [("/a", False, "/app/a"), ("/a", True, "/app/a"), ("/", False, "/app"), ("/", True, "/app/")],
)
def test_the_chroot_comes_before_the_path_of_a_create(path: str, sequential: bool, full: str) -> None:
    flags = CreateFlags.SEQUENTIAL if sequential else CreateFlags(0)
    assert creation("/app", path, b"1", sequential=sequential) == CreateRequest(full, b"1", OPEN_ACL, flags)
    assert creation("", path, b"", sequential=sequential).path == path
    if not sequential:
        assert server_path("/app", path) == full


@pytest.mark.parametrize("version", [-(2**31), -1, 0, 2**31 - 1])
def test_every_version_of_32_bits_is_taken(version: int) -> None:
    assert checked_version(version) == version


@pytest.mark.parametrize("version", [-(2**31) - 1, 2**31])
def test_a_version_of_more_than_32_bits_is_refused(version: int) -> None:
    with pytest.raises(ValueError, match=f"version must fit in 32 bits, and {version} does not"):
        checked_version(version)


@pytest.mark.parametrize(
    ("acl", "message"),
    [
        (5, "not int"),
        (["read"], "number 0 is str"),
        ([ACL(31, "world", "anyone"), None], "number 1 is NoneType"),
        ([ACL("31", "world", "anyone")], "number 0 is of str, str, str"),  # type: ignore[arg-type]
        ([ACL(31.0, "world", "anyone")], "number 0 is of float, str, str"),  # type: ignore[arg-type]
        ([ACL(31, b"world", "anyone")], "number 0 is of int, bytes, str"),  # type: ignore[arg-type]
        ([ACL(31, "world", None)], "number 0 is of int, str, NoneType"),  # type: ignore[arg-type]
    ],
    ids=str,
)
def test_an_acl_of_another_type_is_refused_with_the_types_that_it_has(acl: Any, message: str) -> None:
    with pytest.raises(
        TypeError, match=f"acl must be a sequence of zkwire.ACL, each of an int and two str, .*{message}$"
    ):
        checked_acl(acl)


def test_a_digest_entry_has_the_hash_that_the_server_computes() -> None:
    # base64(sha1("bob:pw"))
    assert digest_acl("bob", "pw") == ACL(31, "digest", "bob:ikIaKsbtGweaHnb/jKn7OHqbunM=")
    assert digest_acl("bob", "pw", Perms.READ).perms == 1
    assert digest_acl("bob", "pw", perms=Perms.READ | Perms.WRITE).perms == 3


@given(st.text(st.characters(exclude_characters=":", exclude_categories=["Cs"])), st.text("päß:word ", min_size=1))
def test_a_digest_entry_shows_the_user_and_not_the_password(user: str, password: str) -> None:
    name, _, shown = digest_acl(user, password).id.partition(":")
    assert name == user
    assert len(shown) == 28
    assert digest_acl(user, password + "!").id != f"{user}:{shown}"


@pytest.mark.parametrize(("user", "password"), [(None, "pw"), ("bob", None), (b"bob", "pw"), ("bob", b"pw"), (5, 5)])
def test_user_and_password_must_be_str_and_the_error_does_not_show_them(user: Any, password: Any) -> None:
    with pytest.raises(TypeError, match=r"^user and password must be str, not ") as refused:
        digest_acl(user, password)
    assert "pw" not in str(refused.value)


@pytest.mark.parametrize(("user", "password"), [("bob\ud800", "pw"), ("bob", "pw\ud800")])
def test_half_a_character_is_refused_and_the_error_does_not_show_it(user: str, password: str) -> None:
    with pytest.raises(ValueError, match=r"must have a UTF-8 form: one of them contains half a character$") as refused:
        digest_acl(user, password)
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__


def test_a_digest_entry_is_made_where_sha1_is_forbidden_for_security(monkeypatch: pytest.MonkeyPatch) -> None:
    sha1 = hashlib.sha1

    def forbidden(data: bytes, *, usedforsecurity: bool = True) -> Any:
        if usedforsecurity:
            raise ValueError("disabled for FIPS")
        return sha1(data, usedforsecurity=False)

    monkeypatch.setattr(hashlib, "sha1", forbidden)
    assert digest_acl("bob", "pw").id == "bob:ikIaKsbtGweaHnb/jKn7OHqbunM="


def test_a_user_with_a_colon_is_refused() -> None:
    with pytest.raises(ValueError, match="must not contain ':'"):
        digest_acl("a:b", "pw")


def test_a_tuple_of_entries_is_checked_once_and_any_other_sequence_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arguments, "_MOST_CHECKED", 3)
    monkeypatch.setattr(arguments, "_CHECKED", type(arguments._CHECKED)())  # without the entries of other tests
    entries = (ACL(Perms.READ, "world", "anyone"),)
    assert checked_acl(entries) == list(entries)
    assert checked_acl(entries) is entries
    others = (ACL(Perms.WRITE, "world", "anyone"),)
    assert checked_acl(others) == list(others)
    assert checked_acl(others) is others
    assert checked_acl(entries) is entries
    changing: list[Any] = list(entries)
    assert checked_acl(changing) == changing
    changing.append("read")
    with pytest.raises(TypeError, match="number 1 is str"):
        checked_acl(changing)
    too_large = (ACL(2**40, "world", "anyone"),)
    for _ in range(2):
        with pytest.raises(ValueError, match="number 0"):
            checked_acl(too_large)
    for number in range(20):
        many = (ACL(Perms.READ, "digest", f"user-{number}:x"),)
        assert checked_acl(many) == list(many)
        assert checked_acl(many) is many
        assert len(arguments._CHECKED) <= 3
