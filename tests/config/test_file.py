"""`config.json`: it comes back as it was, older ones mean what they meant, later ones are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gossamer import GALA, PALA, PPO
from gossamer.config.build import program, task
from gossamer.config.file import flat, from_dict, migrated, to_dict
from gossamer.config.names import ALGORITHMS, ARCHITECTURES, OPTIMIZERS
from gossamer.config.resolve import configure
from gossamer.envs import catalogue
from gossamer.envs.options import (
    AleOptions,
    AtariOptions,
    EnvOptions,
    GamesOptions,
    GymOptions,
    PlainOptions,
)
from gossamer.storage.directory import load_config
from gossamer.system.errors import UserError

# Written by version 0.1.0, before configurations had a format number
FORMAT_1 = Path(__file__).parents[1] / "data" / "format_1" / "configs"
OLD = ("paac", "gala", "pala")


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_configuration_comes_back_from_its_file(architecture: str) -> None:
    # Every algorithm with every architecture; optimizers in turn, so that every one is with every algorithm, too
    for turn, algorithm in enumerate(ALGORITHMS, list(ARCHITECTURES).index(architecture)):
        optimizer = list(OPTIMIZERS)[turn % len(OPTIMIZERS)]
        made = configure(architecture, env="catch", algorithm=algorithm, optimizer=optimizer, learning_rate=1 / 3)
        assert from_dict(json.loads(json.dumps(to_dict(made)))) == (made, []), (algorithm, optimizer)


def test_the_file_is_nested_and_has_every_value() -> None:
    found = to_dict(configure("gala", env="catch", algorithm="ppo", steps=500))
    assert found["format"] == 2
    assert list(found)[3:] == ["run", "env", "architecture", "algorithm", "network", "optimizer", "optimization"]
    assert found["architecture"]["name"] == "gala"
    assert found["architecture"]["learners"] == 4
    assert (found["run"]["device"], found["run"]["seed"], found["optimization"]["anneal_steps"]) == ("auto", 1, 500)
    assert found["optimizer"] == {"name": "adam", "epsilon": 1e-5}
    assert [name for part in found.values() if isinstance(part, dict) for name in part if part[name] is None] == [
        "init_from",
        "eval_protocol",
        "hidden_sizes",
        "activation",
    ]


@pytest.mark.parametrize("name", OLD)
def test_a_file_of_format_1_is_migrated(name: str) -> None:
    old = json.loads((FORMAT_1 / f"{name}.json").read_text())
    made, notes = from_dict(old)
    assert notes == []
    new = flat(made)
    assert (new["architecture"], new["env"], new["steps"], new["num_envs"]) == (name, "catch", 400, 4)
    assert (new["anneal_steps"], new["learning_rate"]) == (old["anneal_steps"], old["learning_rate"])
    assert (new["gamma"], new["gae_lambda"], new["max_grad_norm"]) == (old["discount"], old["trace"], old["clip_norm"])
    assert (new["keep"], new["checkpoint_every"], new["init_from"]) == (3, 60.0, None)
    assert task(made).rollout_length == old["rollout"]
    assert program(made).name == name


def test_what_was_chosen_in_format_1_stays_chosen() -> None:
    made = {name: from_dict(json.loads((FORMAT_1 / f"{name}.json").read_text()))[0] for name in OLD}
    assert isinstance(made["paac"].algorithm, PPO)
    assert made["gala"].architecture == GALA(
        learners=2, num_envs=4, env_workers=0, sync="bounded", staleness=8, interval=1
    )
    assert made["pala"].architecture == PALA(
        num_envs=4, env_workers=0, sync="bounded", staleness=0, interval=1, message_format="bf16"
    )
    assert (made["pala"].preset, flat(made["pala"])["optimizer"]) == ("paper", "rmsprop-torch")


def test_a_field_that_is_missing_means_what_was_before_it_and_is_noted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = to_dict(configure("paac", env="catch", keep=9))
    del content["run"]["keep"]
    del content["run"]["checkpoint_every"]
    (tmp_path / "config.json").write_text(json.dumps(content))
    made = load_config(tmp_path)
    assert (made.run.keep, made.run.checkpoint_every) == (3, 60.0)
    told = capsys.readouterr().err
    assert "run.keep is missing: 3, as before this option existed" in told
    assert told.count("\n") == 2
    notes: list[str] = []
    load_config(tmp_path, notes.append)
    assert len(notes) == 2


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"format": 3}, "format 3: written by a later version"),
        ({"run": {"colour": "red"}}, "run has unknown fields colour: written by a later version"),
        ({"run": {"steps": 0}}, "--steps 0: must be at least 1"),
        ({"algorithm": {"name": "sac"}}, "--algorithm sac: no such algorithm"),
        ({"algorithm": {"name": "nowhere:Mine"}}, "--algorithm nowhere:Mine: cannot be imported"),
    ],
)
def test_what_cannot_be_is_refused(change: dict[str, Any], told: str, tmp_path: Path) -> None:
    content = to_dict(configure("paac", env="catch"))
    for place, values in change.items():
        content[place] = {**content[place], **values} if isinstance(values, dict) else values
    (tmp_path / "config.json").write_text(json.dumps(content))
    with pytest.raises(UserError, match=f"config.json: {told}"):
        load_config(tmp_path)


def test_migration_leaves_out_what_the_composition_does_not_have() -> None:
    found = migrated(json.loads((FORMAT_1 / "paac.json").read_text()))
    assert found["architecture"].keys() == {"name", "num_envs", "env_workers"}
    assert "clip_range" in found["algorithm"]


@pytest.mark.parametrize(
    ("name", "options", "kind"),
    [
        ("nowhere:Mine", {"on_env_error": "restart"}, GymOptions),
        ("Absent-v3", {"action_masks": True}, GymOptions),
        ("registered_by_a_script", {"on_env_error": "fail"}, GymOptions),
        ("pong", {"preprocessing": "gala", "frame_stack": 1}, AtariOptions),
        ("pong:2,breakout", {"preprocessing": "gala", "clip_rewards": False}, AtariOptions),
        ("atari-5:2", {"preprocessing": "paac", "clip_rewards": False}, AtariOptions),
        ("nowhere:Mine,elsewhere:Yours", {"on_env_error": "restart"}, GamesOptions),
        ("ALE/Pong-v5", {"screen_size": 42}, AleOptions),
        ("recall", {}, PlainOptions),
    ],
)
def test_a_file_is_read_where_its_environment_is_absent(
    name: str, options: dict[str, Any], kind: type[EnvOptions], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogue, "_has_atari", lambda: False)
    made, _ = from_dict({**to_dict(configure("paac", env="catch")), "env": {"name": name, **options}})
    assert made.env == kind(name, **options)
    assert to_dict(made)["env"].items() >= {"name": name, **options}.items()


@pytest.mark.parametrize(
    ("env", "kind"), [("pong", AtariOptions), ("CartPole-v1", GymOptions), ("mine:Env", GymOptions)]
)
def test_the_kind_of_an_environment_of_format_1_is_that_of_its_name(env: str, kind: type[EnvOptions]) -> None:
    old = json.loads((FORMAT_1 / "paac.json").read_text())
    assert type(from_dict({**old, "env": env})[0].env) is kind
