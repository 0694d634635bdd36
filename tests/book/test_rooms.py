"""What the chapters of the built book read: a change in a room of labkit executes those that use it, and no others."""

import json

import execution
import rooms
from chapters import notebooks


def test_no_chapter_read_a_room_that_it_does_not_use():
    users, read = {}, 0
    for document in notebooks():
        record = execution.inputs_of(execution.REPO / f"{document}.md")
        if not record.exists():  # it failed at first, so Sphinx executed it, without a record
            continue
        read += 1
        for room in rooms.rooms_of(json.loads(record.read_text(encoding="utf-8"))["files"]):
            users.setdefault(room, set()).add(document)
    assert read > len(notebooks()) / 2
    assert rooms.strangers(users) == {}
    assert all(users[room] for room in rooms.USERS)
