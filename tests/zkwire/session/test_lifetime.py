"""Who is told that a session does not live for certain any more, or is over for good, and when."""

import asyncio
from collections.abc import Callable

from zkwire.errors import SessionClosedError, SessionExpiredError
from zkwire.session.lifetime import OnClosed, OnUncertain


class Session:
    """A moment until which all is certain, as a session has one, and what was told."""

    def __init__(self, seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self.certain_until = self._loop.time() + seconds
        self.on_uncertain = OnUncertain(lambda: self.certain_until)
        self.told: list[str] = []
        self.is_told = asyncio.Event()

    def callback(self, name: str) -> Callable[[], None]:
        def tell() -> None:
            assert self._loop.time() >= self.certain_until
            self.told.append(name)
            self.is_told.set()

        return tell


async def test_all_are_told_once_when_certainty_ends() -> None:
    session = Session(0.02)
    for name in ("first", "second"):
        session.on_uncertain.add(session.callback(name))
    await session.is_told.wait()
    await asyncio.sleep(0)
    assert session.told == ["first", "second"]
    session.on_uncertain.check_soon()
    for _ in range(3):
        await asyncio.sleep(0)
    assert session.told == ["first", "second"]


async def test_every_answer_puts_it_off() -> None:
    session = Session(0.01)
    session.on_uncertain.add(session.callback("one"))
    session.certain_until += 0.05
    await session.is_told.wait()  # the callback itself looks at the clock


async def test_who_was_discarded_is_not_told_and_who_was_never_added_need_not_be() -> None:
    session = Session(0.01)
    one, other = session.callback("one"), session.callback("other")
    session.on_uncertain.add(one)
    session.on_uncertain.discard(one)
    session.on_uncertain.discard(other)
    session.on_uncertain.add(other)
    await session.is_told.wait()
    assert session.told == ["other"]


async def test_one_that_fails_does_not_keep_it_from_the_others() -> None:
    session = Session(0.01)
    failures: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: failures.append(context["exception"]))

    def failing() -> None:
        raise ZeroDivisionError

    session.on_uncertain.add(failing)
    session.on_uncertain.add(session.callback("one"))
    await session.is_told.wait()
    assert [type(failure) for failure in failures] == [ZeroDivisionError]


async def test_one_may_be_discarded_until_it_is_told() -> None:
    session = Session(0.01)
    late = session.callback("late")

    def first() -> None:
        session.told.append("first")
        session.on_uncertain.discard(late)
        asyncio.get_running_loop().call_soon(session.is_told.set)

    session.on_uncertain.add(first)
    session.on_uncertain.add(late)
    await session.is_told.wait()
    assert session.told == ["first"]


async def test_the_end_of_the_session_is_told_soon_and_leaves_no_timer() -> None:
    session = Session(60.0)
    session.on_uncertain.add(session.callback("one"))
    session.certain_until = float("-inf")
    session.on_uncertain.check_soon()
    assert session.told == []
    await session.is_told.wait()
    assert session.told == ["one"]
    session.on_uncertain.check_soon()  # nobody is left to be told


async def test_who_comes_when_it_is_over_is_told_at_once() -> None:
    session = Session(0.0)
    session.certain_until = float("-inf")
    session.on_uncertain.add(session.callback("late"))
    await session.is_told.wait()
    assert session.told == ["late"]


async def test_who_is_told_may_ask_to_be_told_again() -> None:
    session = Session(0.01)
    again = session.callback("again")

    def once_more() -> None:
        session.certain_until = asyncio.get_running_loop().time() + 0.01
        session.on_uncertain.add(again)

    session.on_uncertain.add(once_more)
    await session.is_told.wait()
    assert session.told == ["again"]


async def test_all_are_told_once_of_the_end() -> None:
    ending, told = OnClosed(), list[str]()

    def callback(name: str) -> Callable[[], None]:
        return lambda: told.append(name)

    given_up = callback("given up")
    ending.add(callback("first"))
    ending.add(given_up)
    ending.add(callback("second"))
    assert ending.error is None
    ending.closed(SessionExpiredError("gone"))
    ending.discard(given_up)  # in the turn of the end, before it was told
    ending.discard(given_up)
    assert told == []
    await asyncio.sleep(0)
    assert told == ["first", "second"]
    ending.add(callback("late"))
    await asyncio.sleep(0)
    ending.closed(SessionClosedError("closed afterwards"))
    await asyncio.sleep(0)
    assert told == ["first", "second", "late"]


async def test_the_error_of_the_end_is_a_new_one_each_time() -> None:
    ending = OnClosed()
    ending.closed(SessionExpiredError("gone"))
    one, other = ending.error, ending.error
    assert isinstance(one, SessionExpiredError)
    assert str(one) == str(other) == "gone"
    assert one is not other
