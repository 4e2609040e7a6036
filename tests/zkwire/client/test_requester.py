"""Several requests at once, errors below a chroot, which name the caller's path, and checks of arguments."""

import asyncio
import random
import weakref
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import zkwire
from tests.support.client import begun, cancelled, no_collector, turns
from tests.support.everywhere import scene
from tests.support.rogue import Rogue, honest
from zkwire import Create, GetChildren, GetData, Sync
from zkwire.client import requester as module
from zkwire.client.requester import Requester, creation
from zkwire.client.trees import ask_each
from zkwire.testing import Server
from zkwire.wire import requests as wire
from zkwire.wire.multi import MultiReply
from zkwire.wire.records import ACL, Perms

MULTI_READ = 22


async def test_a_lost_answer_names_the_callers_path() -> None:
    async with scene() as stage, zkwire.connect(f"{stage.server.hosts}/app") as app:
        await app.ensure_path("/a")
        for write in (app.set("/a", b"1"), app.create("/a/c")):
            with stage.server.drop_before(session=app.session_id), pytest.raises(zkwire.ConnectionLostError) as lost:
                await write
            _names_the_callers_path(lost.value)
        with stage.server.drop_before(session=app.session_id):
            (result,) = await app.pipeline([zkwire.Create("/a/b")])
        assert isinstance(result, zkwire.ConnectionLostError)
        _names_the_callers_path(result)


def _names_the_callers_path(error: zkwire.ConnectionLostError) -> None:
    assert f" {error.path}: the connection to " in str(error)
    assert "/app" not in str(error)


@pytest.mark.parametrize("name", ["get", "get_and_watch", "exists_and_watch", "set", "create", "delete"])
async def test_a_refused_request_needs_no_garbage_collector(name: str) -> None:
    """An error, and the watch that a read of an absent node returns, go with the last name for them."""
    arguments = {"set": [b""], "create": [b""]}.get(name, [])
    async with scene() as stage:
        with no_collector():
            left: weakref.ref[Any]
            try:
                _, watch = await getattr(stage.zk, name)("/no/node", *arguments)
            except zkwire.NoNodeError as error:
                left = weakref.ref(error)
            else:
                left = weakref.ref(watch)
                watch.cancel()
                del watch
            await turns()
            assert left() is None


async def test_an_answer_that_cannot_be_read_is_a_result_of_a_pipeline_wherever_it_is() -> None:
    small, large = zkwire.GetData("/"), zkwire.GetData("/large")
    async with Server() as server, zkwire.connect(server.hosts, reply_limit=20_000) as zk:
        await zk.create("/large", bytes(30_000))
        for asked in ([small, large], [large, small]):
            assert type((await zk.pipeline(asked))[asked.index(large)]) is zkwire.ProtocolError


@pytest.mark.parametrize("name", ["pipeline", "get_many"])
async def test_the_end_of_the_session_needs_no_garbage_collector(name: str) -> None:
    async with scene() as stage:
        with no_collector():
            async with stage.server.hold_replies(session=stage.zk.session_id):
                asking = await begun(getattr(stage.zk, name)([GetData("/")]))
                stage.server.expire(stage.zk.session_id)
                try:
                    await asking
                except zkwire.SessionExpiredError as error:
                    left = weakref.ref(error)
            del asking
            await stage.zk.ping()  # in the next session
            assert left() is None


async def test_a_refusal_of_a_request_without_a_path_has_none() -> None:
    async with scene() as stage, zkwire.connect(f"{stage.server.hosts}/app") as app:
        with stage.server.answering("whoAmI", zkwire.UnimplementedError), pytest.raises(zkwire.ServerError) as refused:
            await app.whoami()
        assert type(refused.value) is zkwire.UnimplementedError
        assert refused.value.path is None


async def test_a_request_that_is_too_large_names_the_callers_path() -> None:
    async with scene() as stage, zkwire.connect(f"{stage.server.hosts}/app") as app:
        too_large = bytes(2_000_000)
        with pytest.raises(ValueError, match="create /a: "):
            await app.create("/a", too_large)
        with pytest.raises(ValueError, match="create2 /a: "):
            await app.pipeline([zkwire.Sync("/"), zkwire.Create("/a", too_large)])
        with pytest.raises(TypeError, match="not an operation: '/a'"):
            await app.pipeline([zkwire.Sync("/"), "/a"])  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=r"exists /aaa.*aaa: "):
            await app.ensure_path("/" + "a" * len(too_large))


async def test_a_get_many_with_another_number_of_results_breaks_the_protocol() -> None:
    no_results = {MULTI_READ: MultiReply([]).encode()}
    behaviour = partial(honest, body=lambda request: no_results.get(request.opcode))
    async with Rogue(behaviour) as rogue, zkwire.connect(rogue.hosts) as zk:
        with pytest.raises(zkwire.ProtocolError, match=r"^0 results for 2 operations"):
            await zk.get_many([GetData("/a"), GetChildren("/a")])


class _Answers:
    """Stands in for a session: the test settles the future of each request, and sees what the requester does to it."""

    def __init__(self) -> None:
        self.requests = self
        self.loop = asyncio.get_running_loop()
        self.request_limit = 1_048_575
        self.futures: list[asyncio.Future[Any]] = []
        self.abandoned: list[asyncio.Future[Any]] = []

    def submit(self, request: wire.Request[Any], watch: object = None, kind: object = None) -> asyncio.Future[Any]:
        self.futures.append(self.loop.create_future())
        return self.futures[-1]

    def abandon(self, future: asyncio.Future[Any], request: wire.Request[Any]) -> None:
        self.abandoned.append(future)


def _requester() -> tuple[_Answers, Requester]:
    answers: Any = _Answers()
    return answers, Requester(answers, "", random.Random(1))


async def test_the_end_of_the_session_is_raised_even_if_a_later_answer_was_lost_before_it() -> None:
    """A read that was cut off waits for the next connection, and a write after it fails at once."""
    answers, requester = _requester()
    asked = [requester.request_of(each) for each in (Sync("/a"), GetData("/a"), Create("/b"))]
    pipeline = await begun(requester.ask_all(asked))
    answered, read, write = answers.futures
    answered.set_result(None)
    write.set_exception(zkwire.ConnectionLostError("cut", maybe_applied=True))
    read.set_exception(zkwire.SessionExpiredError("over"))
    with pytest.raises(zkwire.SessionExpiredError):
        await pipeline
    # What was answered may have made a node that no caller learns of; it is abandoned once, as are the failed ones.
    assert answers.abandoned == answers.futures


async def test_when_taking_an_answer_fails_the_requests_after_it_are_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zkwire.client.trees._MOST_UNANSWERED", 3)
    answers, requester = _requester()

    def refuse(_: object, answer: object) -> None:
        raise LookupError(answer)

    asking = await begun(ask_each(requester, [wire.GetDataRequest("/a", False)] * 5, refuse))
    first, second, third = answers.futures
    second.set_exception(zkwire.ConnectionLostError("cut", maybe_applied=True))
    first.set_result("first")
    with pytest.raises(LookupError, match="first"):
        await asking
    assert third.cancelled()
    assert (answers.abandoned, second._log_traceback) == ([second], False)  # asyncio does not report its error
    await cancelled(await begun(ask_each(requester, [wire.GetDataRequest("/a", False)] * 2, refuse)))
    assert [each.cancelled() for each in answers.futures[3:]] == [True, True]


# -- the callers' arguments -------------------------------------------------------------------------------------------

MOST_MILLISECONDS = 2**40 - 1


@given(st.integers(1, MOST_MILLISECONDS), st.booleans())
def test_a_ttl_is_sent_in_milliseconds(milliseconds: int, sequential: bool) -> None:
    create = Create("/a", b"data", ttl=milliseconds / 1000, sequential=sequential)
    request = creation("/app", create)
    assert isinstance(request, wire.CreateTTLRequest)
    assert (request.path, request.data, request.ttl) == ("/app/a", b"data", milliseconds)
    assert request.flags == (6 if sequential else 5)
    assert creation("/app", create, with_stat=True) == request


@pytest.mark.parametrize("options", [{"container": True}, {"ephemeral": True}, {"ephemeral": True, "sequential": True}])
def test_a_ttl_node_cannot_be_of_another_kind(options: Any) -> None:
    with pytest.raises(ValueError, match="/a: "):
        creation("", Create("/a", ttl=5.0, **options))


def test_a_tuple_of_entries_is_checked_once_and_any_other_sequence_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def checked(acl: Any) -> Any:
        return creation("", Create("/a", acl=acl)).acl

    monkeypatch.setattr(module, "_MOST_CHECKED", 3)
    monkeypatch.setattr(module, "_CHECKED", type(module._CHECKED)())  # without the entries of other tests
    entries = (ACL(Perms.READ, "world", "anyone"),)
    assert checked(entries) == list(entries)
    assert checked(entries) is entries
    others = (ACL(Perms.WRITE, "world", "anyone"),)
    assert checked(others) == list(others)
    assert checked(others) is others
    assert checked(entries) is entries
    changing: list[Any] = list(entries)
    assert checked(changing) == changing
    for wrong, shown in (("read", "str"), (ACL("1", "world", "anyone"), "of str, str, str")):  # type: ignore[arg-type]
        changing[1:] = [wrong]
        with pytest.raises(TypeError, match=f"number 1 is {shown}"):
            checked(changing)
    too_large = (ACL(2**40, "world", "anyone"),)
    for _ in range(2):
        with pytest.raises(ValueError, match="number 0"):
            checked(too_large)
    for number in range(20):
        many = (ACL(Perms.READ, "digest", f"user-{number}:x"),)
        assert checked(many) == list(many)
        assert checked(many) is many
        assert len(module._CHECKED) <= 3


async def test_the_errors_of_a_tree_below_a_chroot_name_the_callers_path_once() -> None:
    async with (
        Server() as server,
        zkwire.connect(f"{server.hosts}/a", request_limit=1024, reply_limit=1800) as zk,
        zkwire.connect(f"{server.hosts}/a") as other,
    ):
        await other.create("/a/a", make_parents=True)
        listing = server.answering("getChildren", zkwire.UnimplementedError, path="/a/a/a")
        with listing, pytest.raises(zkwire.ServerError) as refused:
            await zk.delete_tree("/a")
        assert refused.value.path == "/a/a"
        await other.create(path := f"/a/{'n' * 1024}")
        with pytest.raises(ValueError, match=f"getChildren {path}: "):
            await zk.delete_tree("/a")
        await other.delete(path)
        await other.pipeline([Create(f"/a/a/{name * 1000}") for name in "ab"])
        with pytest.raises(zkwire.ProtocolError, match="getChildren /a/a: "):
            await zk.delete_tree("/a")
