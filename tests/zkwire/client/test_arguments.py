"""Checks of arguments: the mode and the ttl of a create, and ACL entries with a password's hash."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkwire.client.arguments import checked_acl, creation, digest_acl
from zkwire.wire.records import ACL, Perms
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
    with pytest.raises(TypeError) as refused:
        digest_acl(user, password)
    assert "pw" not in str(refused.value)


def test_a_user_with_a_colon_is_refused() -> None:
    with pytest.raises(ValueError, match="must not contain ':'"):
        digest_acl("a:b", "pw")


def test_a_tuple_of_entries_is_checked_once_and_any_other_sequence_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zkwire.client.arguments._MOST_CHECKED", 3)
    entries = (ACL(Perms.READ, "world", "anyone"),)
    assert checked_acl(entries) == list(entries)
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
