"""Warnings about nodes of other clients: each node once, and not without end."""

import logging

import pytest

from recipes.common.warn_once import WarnOnce


def test_each_path_is_reported_once_and_a_long_one_is_cut_and_shown_to_be(caplog: pytest.LogCaptureFixture) -> None:
    warnings, longest = WarnOnce(logging.getLogger("recipes.test"), "the queue /q"), f"/{'x' * 299}"
    for _ in range(3):
        warnings.warn(longest, "is bad")
        warnings.warn(f"{longest}x", "is worse")
    assert caplog.messages == [f"the queue /q: {longest} is bad", f"the queue /q: {longest}... is worse"]


def test_neither_many_nodes_nor_long_names_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    warnings = WarnOnce(logging.getLogger("recipes.test"), "the queue /q")
    for number in range(1000):
        warnings.warn(f"/q/{number}{'x' * 5000}", "is bad")
    assert max(map(len, caplog.messages)) < 400
    assert [text.endswith("is bad (no further node is reported)") for text in caplog.messages] == [False] * 99 + [True]
