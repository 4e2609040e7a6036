"""The listeners to a session's states."""

from zkwire.session.observer import SessionState, States


def test_a_listener_hears_every_state_until_it_is_removed() -> None:
    states = States()
    heard: list[SessionState] = []
    others: list[SessionState] = []
    states.listen(heard.append)
    states.listen(others.append)
    states.enter(SessionState.CONNECTED)
    states.unlisten(heard.append)
    states.unlisten(heard.append)  # once more: it is ignored
    states.enter(SessionState.SUSPENDED)
    assert states.now is SessionState.SUSPENDED
    assert heard == [SessionState.CONNECTED]
    assert others == [SessionState.CONNECTED, SessionState.SUSPENDED]


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
