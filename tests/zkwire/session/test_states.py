"""The listeners to a session's states."""

from zkwire.session.observer import SessionState, States


def test_a_listener_that_removes_itself_does_not_keep_the_next_one_from_hearing() -> None:
    states = States()
    heard: list[str] = []

    def once(state: SessionState) -> None:
        states.unlisten(once)
        heard.append("first")

    states.listen(once)
    states.listen(lambda state: heard.append("second"))
    states.enter(SessionState.CONNECTED)
    states.enter(SessionState.SUSPENDED)
    assert heard == ["first", "second", "second"]
