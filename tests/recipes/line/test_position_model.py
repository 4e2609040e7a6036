"""A ticket's position against a plain model of it: every property, after every step of random histories.

The model keeps the last list and the facts since then, and computes all from these each time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipes.line.position import Position, Promises, Ranking, every_contender
from recipes.line.ticket import is_writer

OWN = 6  # the place of the ticket among NAMES
NAMES = [f"_c_{'9073518246'[n]}-{'__READ__' if n in (1, 4, 5) else '__WRIT__'}-{n:010d}" for n in range(10)]
NOTE = "note"  # without a number


class Model:
    """The ticket NAMES[OWN]; the arguments are those of Position."""

    def __init__(self, blocks: Callable[[str], bool], slots: int | None, ahead: int) -> None:
        self.blocks, self.ahead = blocks, ahead
        self.has_fixed_slots = self.knows_slots = slots is not None
        self.slots = slots or 1
        self.listed: list[str] | None = None
        self.departed: set[str] = set()
        self.watched: set[str] = set()
        self.unreadable: set[str] = set()
        self.sees_children = False
        self.is_gone = self.is_watched = self.needs_sync = False
        self.needs_list = True
        self.needs_slots = slots is None
        self.shown: list[str] = []  # the blockers of the last list, in order

    def take_list(self, names: Sequence[str], *, is_watched: bool) -> None:
        self.listed = list(names)
        self.is_gone |= NAMES[OWN] not in names
        self.shown = [name for name in NAMES[:OWN] if name in names and self.blocks(name)]
        self.sees_children = is_watched
        self.needs_list = self.watches_children and not is_watched

    def take_shared(self, names: Sequence[str]) -> None:
        if self.needs_list and self.is_informed and not self.unreadable and NAMES[OWN] in names:
            shown = [name for name in NAMES[:OWN] if name in names and self.blocks(name)]
            if len(shown) <= self.slots + self.ahead:
                self.shown, self.needs_list = shown, False

    def take_departure(self, name: str) -> None:
        if name == NAMES[OWN]:
            self.is_gone = True
        elif name in self.before:
            self.departed.add(name)
            self.needs_list |= not set(self.before) <= self.watched
        else:
            self.departed.add(name)

    def take_slots(self, slots: int, *, is_watched: bool) -> None:
        self.slots, self.knows_slots, self.needs_slots = slots, True, not is_watched

    def slots_changed(self) -> None:
        self.knows_slots, self.needs_slots = False, True

    def take_watched(self, name: str) -> None:
        if name == NAMES[OWN]:
            self.is_watched = True
        else:
            self.watched.add(name)

    def take_unreadable(self, name: str) -> None:
        self.unreadable.add(name)
        self.needs_list |= not self.sees_children

    def children_changed(self) -> None:
        self.sees_children = False
        self.needs_list |= self.watches_children

    def start_over(self) -> None:
        self.shown = self.before
        self.listed, self.is_watched, self.needs_list, self.sees_children = None, False, True, False
        for known in (self.departed, self.watched, self.unreadable):
            known.clear()
        if not self.has_fixed_slots:
            self.slots_changed()
            self.needs_sync = True

    @property
    def is_informed(self) -> bool:
        return self.listed is not None and self.knows_slots

    @property
    def before(self) -> list[str]:
        return [name for name in self.shown if name not in self.departed]

    @property
    def watches_children(self) -> bool:
        return any(name in self.unreadable for name in self.before)

    @property
    def to_watch(self) -> list[str]:
        last = list(reversed(self.before))[: self.slots + self.ahead]
        return [name for name in reversed(last) if name not in self.watched | self.unreadable]

    def state(self) -> dict[str, object]:
        before = self.before
        return {
            "name": NAMES[OWN],
            "before": before,
            "first": before[: self.slots],
            "is_free": len(before) < self.slots,
            "to_watch": self.to_watch,
            "unknown": [name for name in reversed(before) if name not in self.watched | self.unreadable],
            "owns": self.is_informed and not self.is_gone and len(before) < self.slots,
            "is_armed": self.is_informed and len(before) == self.slots and set(before) <= self.watched,
            "is_gone": self.is_gone,
            "is_watched": self.is_watched,
            "watches_children": self.watches_children,
            "needs_list": self.needs_list,
            "needs_slots": self.needs_slots,
            "needs_sync": self.needs_sync,
            "needs_requests": self.needs_list or self.needs_slots or not self.is_watched or bool(self.to_watch),
        }


def state(position: Position) -> dict[str, object]:
    names = set(Model(every_contender, 1, 1).state())
    return {name: getattr(position, name) for name in names}


STEPS = ["list", "list", "list", "departure", "departure", "departure", "watch all", "watched", "unwatched"]
STEPS += ["unreadable", "children", "slots", "slots changed", "shared", "shared", "shared", "synced", "start over"]


def draw_names(data: st.DataObject) -> list[str]:
    """Draw a list of the children, in any order; in general our own node is there."""
    there = data.draw(st.sets(st.sampled_from([*NAMES, NOTE]), min_size=5))
    if data.draw(st.integers(0, 7)):
        there.add(NAMES[OWN])
    return data.draw(st.permutations(sorted(there)))


def take_step(data: st.DataObject, position: Position, model: Model) -> None:
    """Draw a step; let the ticket and its model take it."""
    name = data.draw(st.sampled_from(NAMES))
    match data.draw(st.sampled_from(STEPS)):
        case "list":
            names, is_watched = draw_names(data), data.draw(st.booleans())
            position.listed(Ranking(names), is_watched=is_watched)
            model.take_list(names, is_watched=is_watched)
        case "departure":
            position.departed(name)
            model.take_departure(name)
        case "watch all":
            for each in [NAMES[OWN], *position.to_watch]:
                position.watched(each)
                model.take_watched(each)
        case "watched":
            position.watched(name)
            model.take_watched(name)
        case "unwatched" if name != NAMES[OWN]:
            position.unwatched(name)
            model.watched.discard(name)
        case "unreadable" if model.before:
            name = data.draw(st.sampled_from(model.before))
            position.unreadable(name)
            model.take_unreadable(name)
        case "children":
            position.children_changed()
            model.children_changed()
        case "slots":
            slots, is_watched = data.draw(st.integers(1, 4)), data.draw(st.booleans())
            position.slots_read(slots, is_watched=is_watched)
            model.take_slots(slots, is_watched=is_watched)
        case "slots changed":
            position.slots_changed()
            model.slots_changed()
        case "shared":
            names = sorted(data.draw(st.sets(st.sampled_from(NAMES[: OWN + 2]), max_size=4)) | {NAMES[OWN]})
            if not data.draw(st.integers(0, 7)):
                names.remove(NAMES[OWN])
            position.caught_up(Ranking(names))
            model.take_shared(names)
        case "synced":
            position.needs_sync = False
            model.needs_sync = False
        case "start over":
            position.started_over()
            model.start_over()


@given(st.data())
def test_a_position_is_what_its_plain_model_is(data: st.DataObject) -> None:
    """Pitfall 21: also when the number of slots changes between two departures."""
    blocks = data.draw(st.sampled_from([every_contender, is_writer]))
    slots, ahead = data.draw(st.sampled_from([1, 2, 3, None])), data.draw(st.integers(0, 1))
    position = Position(NAMES[OWN], blocks=blocks, slots=slots, ahead=ahead)
    model = Model(blocks, slots, ahead)
    assert state(position) == model.state()
    for _ in range(data.draw(st.integers(1, 25))):
        take_step(data, position, model)
        assert state(position) == model.state()


def test_a_lock_is_what_is_asked_for_by_default() -> None:
    position, model = Position(NAMES[OWN]), Model(every_contender, 1, 1)
    assert state(position) == model.state()
    position.listed(Ranking(NAMES))
    model.take_list(NAMES, is_watched=False)
    assert state(position) == model.state()
    position.departed(NAMES[5])
    model.take_departure(NAMES[5])
    for shared in NAMES[4:OWN], NAMES[3:], NAMES[4:]:
        position.caught_up(Ranking(shared))
        model.take_shared(shared)
        assert state(position) == model.state()
    position.slots_read(2)
    model.take_slots(2, is_watched=True)
    assert state(position) == model.state()


# -- the order of the line --------------------------------------------------------------------------------------------


@given(
    st.integers(0, 2**32 - 1),
    st.lists(
        st.tuples(st.integers(-3, 3) | st.integers(1 - 2**30, 2**30), st.sampled_from("ab")), unique=True, max_size=9
    ),
    st.lists(st.integers(0, 8), max_size=5),
)
def test_a_ranking_is_the_order_of_the_numbers_whatever_was_removed(
    start: int, tickets: list[tuple[int, str]], places: list[int]
) -> None:
    """Several names may have one number, where clients choose names themselves: these are in the order of the names."""

    def is_a(name: str) -> bool:
        return name.startswith("a")

    numbered = {f"{kind}-lock-{(start + n + 2**31) % 2**32 - 2**31:010d}": (n, kind) for n, kind in tickets}
    ranking = Ranking([*numbered, NOTE])
    kinds = (every_contender, is_a)
    for name in numbered:
        assert [ranking.before(name, blocks)[1] for blocks in kinds] == [
            len([each for each in numbered if numbered[each][0] < numbered[name][0] and blocks(each)])
            for blocks in kinds
        ]
    for place in places:
        name = [*numbered, NOTE, "never there", "a-lock-0000000099"][place % (len(numbered) + 3)]
        if name != NOTE:
            ranking.remove(name)
            numbered.pop(name, None)
        in_order = sorted(numbered, key=numbered.__getitem__)
        assert (name in ranking, NOTE in ranking) == (name == NOTE, True)
        assert list(ranking) == [*numbered, NOTE]
        for each in numbered:
            assert ranking.before(each, every_contender)[0] == in_order
            assert ranking.before(each, is_a)[0] == list(filter(is_a, in_order))
            count = len([other for other in numbered if numbered[other][0] < numbered[each][0]])
            assert ranking.before(each, every_contender)[1] == count
    ranking.remove(NOTE)
    assert (NOTE in ranking, list(ranking)) == (False, list(numbered))


def test_a_position_needs_a_number() -> None:
    with pytest.raises(ValueError, match=r"^'note' has no sequence number, so it is not a ticket$"):
        Ranking(NAMES).before(NOTE, every_contender)


# -- the promises of holders ------------------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 2), st.integers(0, 5), st.integers(0, 3)), max_size=12)
)
def test_the_newest_promise_of_each_counts_from_when_it_was_seen(steps: list[tuple[str, int, int, int]]) -> None:
    promises = Promises()
    known: dict[str, tuple[int, float]] = {}
    for name, version, end, kind in steps:
        if kind:
            promises.seen(name, version, float(end))
            if known.get(name, (None, 0.0))[0] != version:
                known[name] = version, float(end)
        else:
            promises.forget(name)
            known.pop(name, None)
        assert promises.next_end == (min(at for _, at in known.values()) if known else None)
        for now in range(7):
            broken = {(each, version) for each, (version, at) in known.items() if at <= now}
            assert set(promises.broken(float(now))) == broken
