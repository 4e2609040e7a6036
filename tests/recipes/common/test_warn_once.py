"""Warnings about nodes of other clients: each node once, and not without end."""

import logging

import pytest

from recipes.common.warn_once import WarnOnce


def test_each_path_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    warnings = WarnOnce(logging.getLogger("recipes.test"), "the queue /q")
    for _ in range(3):
        warnings.warn("/q/a", "is bad")
        warnings.warn("/q/b", "is worse")
    assert [record.getMessage() for record in caplog.records] == [
        "the queue /q: /q/a is bad",
        "the queue /q: /q/b is worse",
    ]


def test_neither_many_nodes_nor_long_names_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    warnings = WarnOnce(logging.getLogger("recipes.test"), "the queue /q")
    for number in range(1000):
        warnings.warn(f"/q/{number}{'x' * 5000}", "is bad")
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 100
    assert max(map(len, messages)) < 400
    assert [text.endswith("is bad (no further node is reported)") for text in messages] == [False] * 99 + [True]


def test_a_long_name_is_cut_and_shown_to_be(caplog: pytest.LogCaptureFixture) -> None:
    warnings = WarnOnce(logging.getLogger("recipes.test"), "the queue /q")
    longest = f"/{'x' * 299}"
    warnings.warn(longest, "is bad")
    warnings.warn(f"{longest}x", "is bad")
    assert [record.getMessage() for record in caplog.records] == [
        f"the queue /q: {longest} is bad",
        f"the queue /q: {longest}... is bad",
    ]
