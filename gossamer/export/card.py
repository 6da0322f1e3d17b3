"""The model card: README.md with YAML front matter, as the Hugging Face Hub reads it."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from gossamer.export.facts import Facts
from gossamer.export.folder import CURVE, ONNX
from gossamer.export.graph import TensorInfo
from gossamer.system.version import __version__

USE = """\
```python
import gossamer

policy = gossamer.load("PATH")  # this folder; neither the environment nor its packages are needed
action = {call}  # one observation, or a batch; policy.reset() before a new episode
```
"""
ATARI = """
`obs` is a stack of preprocessed pictures {shape}. `screens = policy.preprocessing()` makes them from the emulator's
screens: `screens.reset(screen)` at the start of a game, then `screens.step(screen, before)`.
"""


def card(facts: Facts, files: Collection[str], graph: Sequence[TensorInfo] = ()) -> str:
    """The text of the card. `files`: names of the other files of the folder. `graph`: the tensors of its ONNX graph."""
    return "\n".join([*_front(facts), "", *_body(facts, files, graph)])


def _front(facts: Facts) -> Iterator[str]:
    """Metadata. Texts are written as JSON, which YAML includes."""
    name = facts.interface.name
    tags = ["reinforcement-learning", "deep-reinforcement-learning", facts.choice("architecture")]
    tags += [facts.choice("algorithm"), name, *(["atari"] if facts.interface.preset else [])]
    yield "---"
    yield "library_name: gossamer"
    yield "pipeline_tag: reinforcement-learning"
    yield "tags:"
    yield from (f"- {json.dumps(tag)}" for tag in dict.fromkeys(tags))
    if facts.scores:
        yield "model-index:"
        yield f"- name: {json.dumps(facts.title)}"
        yield "  results:"
        for score in facts.scores:
            yield from _result(name, str(score), score.protocol)
    yield "---"


def _result(env: str, score: str, protocol: str) -> Iterator[str]:
    """One result of `model-index`."""
    metric = {"type": "mean_reward", "value": score, "name": f"mean return ({protocol})", "verified": False}
    parts: dict[str, dict[str, Any]] = {
        "task": {"type": "reinforcement-learning", "name": "reinforcement-learning"},
        "dataset": {"name": env, "type": re.sub(r"[^A-Za-z0-9._-]+", "-", env)},
    }
    for place, (part, fields) in enumerate(parts.items()):
        yield f"  {'-' if place == 0 else ' '} {part}:"
        yield from (f"      {key}: {json.dumps(value)}" for key, value in fields.items())
    yield "    metrics:"
    for place, (key, value) in enumerate(metric.items()):
        yield f"    {'-' if place == 0 else ' '} {key}: {json.dumps(value)}"


def _body(facts: Facts, files: Collection[str], graph: Sequence[TensorInfo]) -> Iterator[str]:
    snapshot, interface = facts.snapshot, facts.interface
    yield f"# {facts.title}\n"
    whose = "" if snapshot.member is None else f", member {snapshot.member}"
    trained_with = snapshot.description.config.get("gossamer", __version__)
    yield f"A policy trained with Gossamer {trained_with}: {snapshot.steps:,} steps, `{snapshot.checkpoint}`{whose}.\n"
    yield "| score | protocol |\n|---|---|"
    yield from (f"| {score} | {score.protocol} |" for score in facts.scores)
    if not facts.scores:
        yield f"| none | no episode has ended{', or not in every game' if interface.games else ''} |"
    if CURVE in files:
        yield f"\n![Training curve]({CURVE})"
    yield f"\n## Use\n\n{USE.format(call=_call(facts))}"
    for each in interface.games or (interface,):
        whose = f"`{each.name}`: o" if interface.games else "O"
        observed, acts = _line(each.observation_space), _line(each.action_space)
        yield f"{whose}bservations: `{observed}`. Actions: `{acts}`.{'  ' if interface.games else ''}"
    if interface.preset is not None:
        yield ATARI.format(shape=list(interface.adapter.spec.obs_shape))
    if ONNX in files:
        yield f"\n`{ONNX}` is the network alone, in float32, for any ONNX runtime. B is the size of the batch.\n"
        yield "| | name | type | |\n|---|---|---|---|"
        yield from (
            f"| {each.kind} | `{each.name}` | {each.dtype} [{', '.join(map(str, each.shape))}] | {each.meaning} |"
            for each in graph
        )
        if interface.games and (names := interface.spec.action_names):
            numbers = ", ".join(f"{n} {name}" for n, name in enumerate(names))
            yield f"\n`action` is a number of all games together: {numbers}."
    yield f"\n## Training\n\n{_options(facts)}"
    yield f"\n## Licences\n\nEnvironment: {facts.licence}. Gossamer: Apache-2.0. These parameters: yours to choose.\n"


def _call(facts: Facts) -> str:
    """How the policy is asked for an action."""
    mask = [', mask=info["action_mask"]'] if facts.interface.adapter.asks_mask else []
    game = [f", game={json.dumps(each.name)}" for each in facts.interface.games[:1]]
    last = [", reward=reward"] if facts.snapshot.description.options.last_action_reward else []
    return f"policy.act(obs{''.join(game + mask + last)})"


def _options(facts: Facts) -> str:
    """Every option of the run, as JSON."""
    content = json.dumps(facts.snapshot.description.config, indent=1)
    return f"<details>\n<summary>Every option of the run</summary>\n\n```json\n{content}\n```\n\n</details>"


def _line(space: object) -> str:
    """The text of a space on one line."""
    return " ".join(str(space).split())
