"""TensorBoard events as TensorBoard itself reads them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from some_runs import trained
from some_sinks import info
from tensorboard.backend.event_processing.data_provider import MultiplexerDataProvider
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
from tensorboard.context import RequestContext
from tensorboard.plugins.hparams import api_pb2, plugin_data_pb2
from tensorboard.plugins.hparams.backend_context import Context
from tensorboard.plugins.hparams.list_session_groups import Handler

from gossamer.training.recorder import Recorder
from gossamer.training.sinks.base import RunEnding
from gossamer.training.sinks.choice import Sinks


def recorder(directory: Path, keep_until: int | None = None, **given: Any) -> Recorder:
    sinks = Sinks("tensorboard")
    sinks.start(info(directory, **given))
    return Recorder(directory, sinks, keep_until=keep_until)


def loaded(directory: Path) -> EventAccumulator:
    events = EventAccumulator(str(directory / "tensorboard"))
    events.Reload()
    return events


def scalars(directory: Path) -> dict[str, list[tuple[int, float]]]:
    events = loaded(directory)
    return {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def test_numbers_stand_at_their_steps(tmp_path: Path) -> None:
    recording = recorder(tmp_path)
    recording.write({"steps": 10, "mean_return": None, "loss": 2.0, "time/env": 0.25})
    recording.write({"steps": 20, "mean_return": 1.5, "loss": 1.0, "time/env": 0.5})
    recording.close()
    assert scalars(tmp_path) == {
        "loss": [(10, 2.0), (20, 1.0)],
        "mean_return": [(20, 1.5)],
        "time/env": [(10, 0.25), (20, 0.5)],
    }


def test_a_row_is_seen_at_once_and_a_resumed_run_beside_it(tmp_path: Path) -> None:
    first = recorder(tmp_path)
    first.write({"steps": 10, "loss": 2.0})
    assert scalars(tmp_path) == {"loss": [(10, 2.0)]}
    first.close()
    second = recorder(tmp_path, keep_until=10)
    second.write({"steps": 20, "loss": 1.0})
    second.close()
    assert len(list((tmp_path / "tensorboard").iterdir())) == 2
    assert scalars(tmp_path) == {"loss": [(10, 2.0), (20, 1.0)]}


def test_evaluations_stand_at_the_steps_of_their_checkpoints(tmp_path: Path) -> None:
    recording = recorder(tmp_path)
    recording.write({"steps": 30, "loss": 2.0})
    recording.evaluated({"steps": 20, "mean_return": 0.5, "std_return": 0.25, "metrics": {}})
    recording.close()
    assert scalars(tmp_path) == {"loss": [(30, 2.0)], "eval/mean_return": [(20, 0.5)], "eval/std_return": [(20, 0.25)]}


def test_the_settings_are_shown_as_text(tmp_path: Path) -> None:
    recorder(tmp_path).close()
    events = loaded(tmp_path)
    assert events.SummaryMetadata("config").plugin_data.plugin_name == "text"
    (event,) = events.Tensors("config")
    assert event.tensor_proto.string_val[0].startswith(b'    {\n      "format": 2,\n')


def hparams(directory: Path, tag: str) -> Any:
    content = loaded(directory).SummaryMetadata(f"_hparams_/{tag}").plugin_data.content
    return plugin_data_pb2.HParamsPluginData.FromString(content)


@pytest.mark.parametrize(
    ("outcome", "status"),
    [("finished", api_pb2.STATUS_SUCCESS), ("failed", api_pb2.STATUS_FAILURE)],
)
def test_the_hparams_page_has_options_and_status(tmp_path: Path, outcome: RunEnding, status: int) -> None:
    recorder(tmp_path).close(outcome)
    options = hparams(tmp_path, "session_start_info").session_start_info.hparams
    assert options["learning_rate"].number_value == 0.002
    assert options["algorithm"].string_value == "a2c"
    assert options["last_action_reward"].bool_value is False
    assert options["init_from"].string_value == "None"
    assert hparams(tmp_path, "session_end_info").session_end_info.status == status


def test_runs_that_differ_in_their_seed_are_one_row_of_the_hparams_page(tmp_path: Path) -> None:
    runs: dict[str, dict[str, Any]] = {
        "slow/seed-1": {"seed": 1, "learning_rate": 0.001},
        "slow/seed-2": {"seed": 2, "learning_rate": 0.001},
        "fast/seed-1": {"seed": 1, "learning_rate": 0.01},
    }
    for number, (name, given) in enumerate(runs.items()):
        (tmp_path / name).mkdir(parents=True)
        recording = recorder(tmp_path / name, **given)
        recording.write({"steps": 10, "mean_return": float(number)})
        recording.close()
    found = {group.hparams["learning_rate"].number_value: group for group in session_groups(tmp_path)}
    assert {rate: [run.name for run in group.sessions] for rate, group in found.items()} == {
        0.001: ["slow/seed-1/tensorboard", "slow/seed-2/tensorboard"],
        0.01: ["fast/seed-1/tensorboard"],
    }
    assert "seed" not in found[0.001].hparams  # it would be that of the first run only
    (mean,) = found[0.001].metric_values
    assert (mean.name.tag, mean.value) == ("mean_return", 0.5)


def session_groups(folder: Path) -> list[Any]:
    """The rows of the HPARAMS page, as TensorBoard makes them."""
    runs = EventMultiplexer()
    runs.AddRunsFromDirectory(str(folder))
    runs.Reload()
    source = Context(SimpleNamespace(data_provider=MultiplexerDataProvider(runs, str(folder))))
    request = api_pb2.ListSessionGroupsRequest(
        start_index=0, slice_size=10, allowed_statuses=[api_pb2.STATUS_UNKNOWN, api_pb2.STATUS_SUCCESS],
        aggregation_type=api_pb2.AGGREGATION_AVG,
    )  # fmt: skip
    return list(Handler(RequestContext(), source, "", request).run().session_groups)


def test_a_run_has_events(tmp_path: Path) -> None:
    run = trained(tmp_path / "run")
    assert scalars(run.directory)["steps_per_second"][-1][0] == 80
