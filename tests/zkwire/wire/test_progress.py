"""When a connection counts as stuck: its oldest request makes no progress, although other bytes arrive."""

from zkwire.wire.progress import Progress

TIMEOUT = 10.0


def test_a_request_is_stuck_after_a_whole_timeout_at_its_first_look() -> None:
    progress, call = Progress(0.0), object()
    assert not progress.is_stuck(None, 0, 100.0, TIMEOUT)
    assert not progress.is_stuck(call, 0, 101.0, TIMEOUT)  # the count begins here
    assert not progress.is_stuck(call, 0, 110.9, TIMEOUT)
    assert progress.is_stuck(call, 0, 111.0, TIMEOUT)
    assert progress.is_stuck(call, 0, 112.0, TIMEOUT)


def test_without_a_request_nothing_is_stuck() -> None:
    progress = Progress(0.0)
    assert not progress.is_stuck(None, 0, 1000.0, TIMEOUT)


def test_the_next_request_has_the_whole_time() -> None:
    progress, first, second = Progress(0.0), object(), object()
    assert not progress.is_stuck(first, 0, 0.0, TIMEOUT)
    assert not progress.is_stuck(second, 0, 9.0, TIMEOUT)
    assert not progress.is_stuck(second, 0, 18.9, TIMEOUT)
    assert progress.is_stuck(second, 0, 19.0, TIMEOUT)


def test_a_frame_that_grows_by_enough_begins_the_count_anew() -> None:
    progress, call = Progress(0.0), object()
    assert not progress.is_stuck(call, 100, 0.0, TIMEOUT)
    assert not progress.is_stuck(call, 100 + 4096, 9.0, TIMEOUT)
    assert not progress.is_stuck(call, 100 + 4096 + 4095, 18.9, TIMEOUT)
    assert progress.is_stuck(call, 100 + 4096 + 4095, 19.0, TIMEOUT)  # it has grown by too little
    assert not progress.is_stuck(call, 100 + 2 * 4096, 19.0, TIMEOUT)


def test_the_growth_of_another_frame_counts_from_its_own_beginning() -> None:
    """A smaller frame is another one: that itself is no progress, but from there on it may grow."""
    progress, call = Progress(0.0), object()
    assert not progress.is_stuck(call, 50_000, 0.0, TIMEOUT)
    assert progress.is_stuck(call, 10, 10.0, TIMEOUT)
    assert not progress.is_stuck(call, 10 + 4096, 11.0, TIMEOUT)


def test_the_time_in_which_a_large_reply_is_decoded_does_not_count() -> None:
    progress, call = Progress(0.0), object()
    assert not progress.is_stuck(call, 0, 0.0, TIMEOUT)
    progress.restart(9.0)
    assert not progress.is_stuck(call, 0, 18.9, TIMEOUT)
    assert progress.is_stuck(call, 0, 19.0, TIMEOUT)
