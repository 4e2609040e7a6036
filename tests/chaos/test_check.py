"""The checker of histories sees each broken promise, and none in a history that keeps them."""

from typing import Any

import pytest

from tests.chaos.check import Expected, check, claims, ran_on, without_owner
from tests.chaos.journal import PARENT, Record

EXPECTED = Expected({"semaphore": 2}, frozenset({"queue"}), frozenset({"claims"}))


def record(at: float, author: str, what: str, **details: Any) -> Record:
    return Record(at, author, what, details)


def acquired(at: float, author: str, until: float, *, token: int = 1, name: str = "lock", **more: Any) -> Record:
    return record(at, author, "acquired", name=name, lease=1, token=token, until=until, **more)


def released(at: float, author: str, name: str = "lock") -> Record:
    return record(at, author, "released", name=name, lease=1)


def texts(*history: Record) -> list[str]:
    return [f"{violation.name}: {violation.text}" for violation in check(history, EXPECTED)]


# -- claims ---------------------------------------------------------------------------------------------------


def test_a_claim_lasts_from_acquiring_to_releasing() -> None:
    (claim,) = claims(
        [acquired(1.0, "1.1", 5.0), record(2.0, "1.1", "certain", lease=1, until=6.0), released(3.0, "1.1")]
    )
    assert (claim.start, claim.end) == (1.0, 3.0)


def test_without_a_release_it_lasts_as_long_as_it_called_itself_certain() -> None:
    (claim,) = claims([acquired(1.0, "1.1", 5.0), record(2.0, "1.1", "certain", lease=1, until=6.0)])
    assert claim.end == 6.0


def test_a_loss_takes_back_nothing_that_was_certain() -> None:
    (claim,) = claims([acquired(1.0, "1.1", 5.0), record(2.0, "1.1", "lost", lease=1)])
    assert claim.end == 5.0


def test_a_lease_without_certainty_claims_nothing() -> None:
    assert claims([acquired(1.0, "1.1", 1.0), record(2.0, "1.1", "certain", lease=1, until=6.0)]) == []


# -- locks ----------------------------------------------------------------------------------------------------


def test_owners_one_after_the_other_are_right() -> None:
    assert texts(acquired(1, "1.1", 5), released(2, "1.1"), acquired(2, "2.1", 6, token=2), released(3, "2.1")) == []


def test_the_owner_after_a_killed_one_comes_when_nothing_was_certain_any_more() -> None:
    assert texts(acquired(1, "1.1", 5), acquired(5.1, "2.1", 6, token=2)) == []


@pytest.mark.parametrize("end", [released(3.0, "1.1"), record(2.9, "1.1", "lost", lease=1, name="lock")])
def test_two_owners_at_a_time_are_seen(end: Record) -> None:
    (found,) = texts(acquired(1, "1.1", 4), acquired(2, "2.1", 6, token=2), end)
    assert found.startswith("lock: two owners for certain: client 1.1 (token 0x1) and client 2.1 (token 0x2)")


def test_a_third_owner_is_seen_within_a_long_claim() -> None:
    history = [acquired(1, "1.1", 9), acquired(2, "2.1", 3, token=2), acquired(4, "3.1", 5, token=3)]
    assert len(texts(*history)) == 2


@pytest.mark.parametrize("token", [1, 2])
def test_a_token_must_grow(token: int) -> None:
    (found,) = texts(acquired(1, "1.1", 2, token=2), acquired(3, "2.1", 4, token=token))
    assert "is not greater" in found


def test_one_client_may_pass_its_token_on_to_its_next_task() -> None:
    again = record(3, "1.1", "acquired", name="lock", lease=2, token=1, until=4)
    assert texts(acquired(1, "1.1", 9), released(2, "1.1"), again) == []


def test_readers_hold_together_and_in_any_order_of_tokens() -> None:
    history = [acquired(1, "1.1", 9, token=2, mode="read"), acquired(2, "2.1", 9, token=1, mode="read")]
    assert texts(*history) == []


@pytest.mark.parametrize(("first", "second"), [("read", "write"), ("write", "read"), ("write", "write")])
def test_a_writer_holds_alone(first: str, second: str) -> None:
    (found,) = texts(acquired(1, "1.1", 4, mode=first), acquired(2, "2.1", 9, token=2, mode=second))
    assert "two owners" in found


def test_a_reader_before_other_readers_still_keeps_a_writer_out() -> None:
    history = [
        acquired(1, "1.1", 9, token=1, mode="read"),
        acquired(2, "2.1", 3, token=2, mode="read"),
        acquired(4, "3.1", 9, token=3, mode="write"),
    ]
    assert len(texts(*history)) == 1


def test_a_writer_may_let_readers_in_by_its_own_token() -> None:
    shared = record(3, "1.1", "acquired", name="lock", lease=2, token=1, until=9, mode="read")
    other = acquired(4, "2.1", 9, token=2, mode="read")
    assert texts(acquired(1, "1.1", 9, mode="write"), released(2, "1.1"), shared, other) == []


def test_a_semaphore_has_as_many_holders_as_permits_and_no_more() -> None:
    two = [acquired(1, "1.1", 9, name="semaphore"), acquired(2, "2.1", 9, name="semaphore")]
    assert texts(*two) == []
    (found,) = texts(*two, acquired(3, "3.1", 9, name="semaphore"))
    assert found.startswith("semaphore: 3 holders of 2 permits")
    assert texts(*two, released(2.5, "1.1", "semaphore"), acquired(3, "3.1", 9, name="semaphore")) == []


# -- what locks protect ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["refused", "guard refused"])
def test_a_write_may_be_refused_only_to_a_holder_without_certainty(what: str) -> None:
    assert texts(record(1, "1.1", what, name="lock", certain=False)) == []
    assert len(texts(record(1, "1.1", what, name="lock", certain=True))) == 1


def test_the_store_takes_no_stale_token() -> None:
    history = [
        record(1, PARENT, "seen", name="lock", token=2),
        record(2, PARENT, "stored", name="lock", token=1, value=1),
    ]
    assert texts(*history) == ["lock: the store has accepted the stale token 0x1"]


def test_the_store_loses_no_update() -> None:
    stored = [record(at, PARENT, "stored", name="lock", token=at, value=value) for at, value in ((1, 1), (2, 2))]
    assert texts(*stored) == []
    assert texts(*stored, record(3, PARENT, "stored", name="lock", token=3, value=2)) == [
        "lock: an update was lost: 2 was written over 2"
    ]


def test_a_guarded_node_loses_no_update() -> None:
    guarded = record(1, "1.1", "guarded", name="lock", value=1, version=1)
    assert texts(guarded, record(2, PARENT, "guard at the end", name="lock", value=2, version=2)) == []
    assert len(texts(record(1, "1.1", "guarded", name="lock", value=1, version=2))) == 1
    assert len(texts(guarded, record(2, PARENT, "guard at the end", name="lock", value=0, version=0))) == 1


def test_nothing_changes_under_a_certain_reader() -> None:
    def read(value: int, *, certain: bool = True) -> Record:
        return record(1, "1.1", "read", name="rw", lease=1, value=value, certain=certain)

    assert texts(read(1), read(1), read(2, certain=False)) == []
    assert len(texts(read(1), read(2))) == 1


# -- counters and queues --------------------------------------------------------------------------------------


def added(begun: float, ended: float, author: str, value: int) -> list[Record]:
    return [
        record(begun, author, "adding", name="counter"),
        record(ended, author, "added", name="counter", value=value),
    ]


@pytest.mark.parametrize("total", [2, 3])
def test_an_addition_that_was_cut_off_may_have_been_made(total: int) -> None:
    history = [*added(1, 2, "1.1", 1), *added(1, 2, "2.1", 2), record(3, "3.1", "adding", name="counter")]
    assert texts(*history, record(9, PARENT, "count at the end", name="counter", value=total)) == []


@pytest.mark.parametrize("total", [1, 3])
def test_an_addition_is_neither_lost_nor_made_twice(total: int) -> None:
    history = [*added(1, 2, "1.1", 1), *added(1, 2, "2.1", 2)]
    assert len(texts(*history, record(9, PARENT, "count at the end", name="counter", value=total))) == 1


def test_no_two_additions_give_one_value() -> None:
    assert len(texts(*added(1, 2, "1.1", 1), *added(1, 2, "2.1", 1))) == 1


def test_an_addition_counts_those_that_had_ended_before_it() -> None:
    assert len(texts(*added(1, 2, "1.1", 2), *added(3, 4, "2.1", 1))) == 1
    assert texts(*added(1, 4, "1.1", 2), *added(3, 5, "2.1", 1)) == []


def test_an_addition_made_twice_is_seen_although_a_later_one_was_cut_off() -> None:
    history = [
        *added(1, 2, "1.1", 2),  # it was made twice, with the values 1 and 2
        record(3, "2.1", "adding", name="counter"),
        record(9, PARENT, "count at the end", name="counter", value=2),
    ]
    assert len(texts(*history)) == 1
    assert "1 values belong to no client, and only 0 additions were cut off until then" in texts(*history)[0]


def test_a_value_may_belong_to_an_addition_that_was_cut_off_before_it_was_passed() -> None:
    history = [
        record(1, "2.1", "adding", name="counter"),
        *added(1, 2, "1.1", 2),
        record(3, "2.1", "adding", name="counter"),  # after an error
        record(4, "2.1", "added", name="counter", value=3),
        record(9, PARENT, "count at the end", name="counter", value=3),
    ]
    assert texts(*history) == []


def item(at: float, author: str, what: str, queue: str = "queue", name: str = "a") -> Record:
    return record(at, author, what, name=queue, item=name)


DRAINED = [record(9, PARENT, "drained", name="queue"), record(9, PARENT, "drained", name="claims")]
PUT = [item(1, "1.1", "putting"), item(2, "1.1", "put")]


def test_each_item_is_taken_once() -> None:
    assert texts(*PUT, item(3, "2.1", "got"), *DRAINED) == []
    assert len(texts(*PUT, item(3, "2.1", "got"), item(4, "3.1", "got"), *DRAINED)) == 1


def test_an_item_is_not_lost_unless_a_take_was_cut_off() -> None:
    assert len(texts(*PUT, *DRAINED)) == 1
    assert texts(*PUT, record(3, "2.1", "getting", name="queue"), *DRAINED) == []
    taking = [record(3, "2.1", "getting", name="queue"), record(4, "2.1", "got none", name="queue")]
    assert len(texts(*PUT, *taking, *DRAINED)) == 1
    assert texts(*PUT, *taking, record(5, "2.1", "session ended"), *DRAINED) == []


def test_no_item_comes_from_nowhere() -> None:
    assert len(texts(item(3, "2.1", "got"))) == 1


def claimed(at: float, author: str, until: float, token: int = 1) -> Record:
    return acquired(at, author, until, name="claims/a", token=token, queue="claims", item="a")


def handled(at: float, author: str) -> Record:
    return record(at, author, "handled", name="claims/a", queue="claims", item="a")


PUT_TO_CLAIM = [item(0, "1.1", "putting", "claims"), item(0.5, "1.1", "put", "claims")]


def test_an_item_is_claimed_again_after_a_claim_that_has_failed() -> None:
    again = [released(2, "2.1", "claims/a"), claimed(3, "3.1", 9, 2), released(4, "3.1", "claims/a"), handled(5, "3.1")]
    assert texts(*PUT_TO_CLAIM, claimed(1, "2.1", 9), *again, *DRAINED) == []


def test_two_do_not_claim_an_item_at_a_time() -> None:
    assert len(texts(*PUT_TO_CLAIM, claimed(1, "2.1", 9), claimed(3, "3.1", 9, 2), *DRAINED)) == 1


def test_a_handled_item_does_not_come_back() -> None:
    first = [claimed(1, "2.1", 9), released(2, "2.1", "claims/a"), handled(2.1, "2.1")]
    assert len(texts(*PUT_TO_CLAIM, *first, claimed(3, "3.1", 9, 2), *DRAINED)) == 1
    assert len(texts(*PUT_TO_CLAIM, *first, handled(3, "3.1"), *DRAINED)) == 1


def test_an_item_that_nobody_could_claim_is_lost() -> None:
    assert len(texts(*PUT_TO_CLAIM, *DRAINED)) == 1


# -- processes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bad",
    [
        record(1, PARENT, "stuck", name="lock", seconds=60.0),
        record(1, PARENT, "left", name="", nodes=["/lock/a"]),
        record(1, PARENT, "failed", name="", client="1.1", why="it ended with 1"),
        record(1, "1.1", "error", name="lock", error="BadVersionError", text="...", transient=False),
    ],
)
def test_what_no_fault_explains_is_a_violation(bad: Record) -> None:
    assert len(texts(bad)) == 1


@pytest.mark.parametrize(("error", "transient"), [("ConnectionLostError", False), ("ThrottledOperationError", True)])
def test_errors_of_faults_are_none(error: str, transient: bool) -> None:
    assert texts(record(1, "1.1", "error", name="lock", error=error, text="...", transient=transient)) == []


# -- figures --------------------------------------------------------------------------------------------------


def test_the_time_without_an_owner_is_between_the_claims() -> None:
    held = claims([acquired(1, "1.1", 5), released(2, "1.1"), acquired(3, "2.1", 4, token=2), acquired(7, "3.1", 9)])
    assert without_owner(held) == [1, 3]


def test_a_body_that_ran_on_is_counted() -> None:
    history = [acquired(1, "1.1", 2), acquired(3, "2.1", 4, token=2), record(3.5, "1.1", "lost", lease=1, name="lock")]
    assert ran_on(history, claims(history)) == [0.5]
