"""Events of a run, as `result.json` lists them."""

from __future__ import annotations

from pathlib import Path

import pytest

from gossamer.storage import events as module
from gossamer.storage.events import EventLog, earlier
from gossamer.storage.files import write_json


def test_a_resumed_run_goes_on_from_earlier_events(tmp_path: Path) -> None:
    first = EventLog()
    first.add("host", steps=100, name="host0", away_seconds=22.0)
    write_json(tmp_path / "result.json", {"steps": 100, **first.to_dict()})
    second = earlier(tmp_path)
    second.add("signal", steps=200, name="SIGTERM")
    assert [(e["kind"], e["steps"], e["name"]) for e in second.events] == [
        ("host", 100, "host0"),
        ("signal", 200, "SIGTERM"),
    ]
    assert second.events[0]["away_seconds"] == 22.0


@pytest.mark.parametrize("content", [None, "", "[]", '{"steps": 3}', '{"events": 3, "events_dropped": 0}'])
def test_there_are_none_where_none_were_written(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "result.json").write_text(content)
    assert earlier(tmp_path) == EventLog()


def test_too_many_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LIMIT", 2)
    log = EventLog()
    for steps in range(5):
        log.add("host", steps=steps)
    assert [event["steps"] for event in log.to_dict()["events"]] == [0, 1]
    assert log.to_dict()["events_dropped"] == 3
