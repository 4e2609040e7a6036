"""Journals lose nothing, and are read while they are written."""

import os
from pathlib import Path

from tests.chaos.journal import Journal, Reader, Record, printed


def test_each_record_is_read_once_and_when_it_is_whole_in_the_order_of_their_moments(tmp_path: Path) -> None:
    reader, path = Reader(tmp_path), tmp_path / "a.jsonl"
    one, other = Journal(path, "1.1"), Journal(tmp_path / "b.jsonl", "2.1")
    one.write("acquired", at=2.0, name="lock", token=16)
    other.write("released", at=1.0, name="lock")
    file = os.open(path, os.O_WRONLY | os.O_APPEND)
    os.write(file, b'{"at": 3.0, "author"')
    found = reader.new()
    assert found == [Record(1.0, "2.1", "released", {"name": "lock"}), Record(2.0, "1.1", "acquired", found[1].details)]
    assert list(printed(found, 1.0))[1].split() == ["1.000", "1.1", "lock", "acquired", "token=0x10"]
    os.write(file, b': "1.1", "what": "two"}\n')
    assert [record.what for record in reader.new()] == ["two"]
    assert reader.new() == []
    os.close(file)
    one.close()
    other.close()
