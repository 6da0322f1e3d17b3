"""TensorBoard events, with the options and the group of the run for its HPARAMS page."""

from __future__ import annotations

import json
import os
import socket
import time

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2
from tensorboard.plugins.hparams.summary_v2 import hparams_pb
from tensorboard.summary.writer.record_writer import RecordWriter

from gossamer.storage.contents import TENSORBOARD
from gossamer.training.sinks.base import RunEnding, RunInfo, Scalars

DT_STRING = 7  # TensorFlow's number of the type


class TensorBoard:
    """A file of TensorBoard events. TensorBoard's own writer writes in a thread, where the error of a full disk is
    lost."""

    def start(self, run: RunInfo, key: str | None) -> None:
        directory = run.directory / TENSORBOARD
        directory.mkdir(exist_ok=True)
        name = f"events.out.tfevents.{time.time():.6f}.{socket.gethostname()}.{os.getpid()}"
        self._records = RecordWriter(open(directory / name, "wb"))  # noqa: SIM115
        self._add(Event(wall_time=time.time(), file_version="brain.Event:2"))
        options = {name: v if isinstance(v, bool | int | float | str) else str(v) for name, v in run.compared.items()}
        # Runs with the same `trial_id` are one row of the page
        self._add(Event(wall_time=time.time(), summary=hparams_pb(options, trial_id=run.group)))
        self._text("config", json.dumps(run.config, indent=2))

    def write(self, scalars: Scalars, steps: int) -> None:
        event = Event(wall_time=time.time(), step=steps)
        for name, value in scalars.items():
            event.summary.value.add(tag=name, simple_value=value)
        self._add(event)

    def close(self, outcome: RunEnding) -> None:
        try:
            self._add(Event(wall_time=time.time(), summary=_session_end(outcome)))
        finally:
            self._records.close()

    def _text(self, tag: str, text: str) -> None:
        """Add a text, shown as it is: TensorBoard reads Markdown, where four spaces mean code."""
        event = Event(wall_time=time.time())
        value = event.summary.value.add(tag=tag)
        value.metadata.plugin_data.plugin_name = "text"
        value.tensor.dtype = DT_STRING
        value.tensor.tensor_shape.SetInParent()  # one text
        value.tensor.string_val.append("".join(f"    {line}\n" for line in text.splitlines()).encode())
        self._add(event)

    def _add(self, event: Event) -> None:
        self._records.write(event.SerializeToString())
        self._records.flush()


def _session_end(outcome: RunEnding) -> Summary:
    """The summary from which the HPARAMS page takes a run's status and end."""
    status = api_pb2.STATUS_FAILURE if outcome == "failed" else api_pb2.STATUS_SUCCESS
    end = plugin_data_pb2.SessionEndInfo(status=status, end_time_secs=time.time())
    data = metadata.create_summary_metadata(plugin_data_pb2.HParamsPluginData(session_end_info=end))
    summary = Summary()
    summary.value.add(tag=metadata.SESSION_END_INFO_TAG, metadata=data, tensor=metadata.NULL_TENSOR)
    return summary
