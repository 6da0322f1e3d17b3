"""What is shown is what there is."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from gossamer.algorithms import A2C, PPO
from gossamer.architectures import PAAC
from gossamer.config import resolve as resolve_module
from gossamer.config.build import program
from gossamer.config.file import flat
from gossamer.config.names import NETWORKS, OPTIMIZERS
from gossamer.config.resolve import configure
from gossamer.system.errors import UserError
from gossamer.system.installation import install
from gossamer.system.options import flag
from gossamer.system.resources import Resources
from gossamer.tools import show as show_module
from gossamer.tools.show import overview, parts, show


def console() -> tuple[Console, io.StringIO]:
    screen = io.StringIO()
    return Console(file=screen, width=200), screen


def test_an_architecture_is_shown_with_its_figure_its_parts_and_where_its_defaults_come_from() -> None:
    paper, screen = console()
    show("paac", paper)
    text = screen.getvalue()
    wired = program(configure("paac", env="catch"))
    assert wired.mermaid() in text
    assert "so any on-policy algorithm can be used" in " ".join(text.split())
    for line in parts(wired):
        assert line in text
    shown = {"pixels", "vector", "continuous"}
    for layer in (*A2C.presets, *PPO.presets, *PAAC.presets):
        if layer.preset in ("paper", "accelerated") or (layer.kind in shown and not layer.beside):
            assert layer.why in text


def test_the_sizes_that_fit_this_machine_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolve_module, "resources", lambda device: Resources(16))
    paper, screen = console()
    show("paac", paper)
    show("dqn", paper)
    lines = screen.getvalue().splitlines()
    start = "sizes for 16 cores, no GPU: --num-envs "
    assert [line.split(":")[0] for line in lines if start in line] == ["  a2c", "  ppo"]
    assert "  dqn: as above; they do not follow from the machine" in lines


def test_every_default_is_in_the_table() -> None:
    paper, screen = console()
    show("paac", paper)
    table = {line.split()[0]: line.split()[1:] for line in screen.getvalue().splitlines() if line.startswith("  --")}
    wanted = flat(configure("paac", env="catch", algorithm="ppo")).keys() - {"architecture", "env"}
    assert {flag(name) for name in wanted} <= set(table)
    assert not {"--learners", "--graph", "--hosts"} & set(table)  # options of other architectures
    assert table["--rollout-length"] == ["5", "5", "5", "50", "32", "128", "5"]
    assert table["--clip-range"] == ["-", "-", "-", "0.3", "0.2", "0.2", "-"]
    assert table["--epsilon"][-1] == "0.1"


def test_piped_output_is_not_cut_to_the_width_of_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    show("gala", show_module.console())
    out = capsys.readouterr().out
    assert "…" not in out
    assert max(map(len, out.splitlines())) > 80


def test_parts_name_workers_hosts_and_what_they_are_wired_with() -> None:
    wired = program(configure("paac", env="catch", num_envs=7, env_workers=2, device="cpu"))
    assert parts(wired) == [
        "host machine: 2 cores, 0 GPUs",
        "worker act_and_learn x1 on machine: Task, Replica, Direct, Alone, envs=7 / 2 workers",
    ]


def test_an_unknown_architecture_is_refused() -> None:
    with pytest.raises(UserError, match="unknown architecture 'pacc'; near: paac"):
        show("pacc", console()[0])


def test_everything_that_can_be_named_is_listed() -> None:
    paper, screen = console()
    overview(paper)
    words = set(screen.getvalue().replace(",", " ").split())
    assert {"paac", "a2c", "ppo", "catch", "catch-pixels", "identity", "CartPole-v1"} <= words
    assert {"LunarLander-v3", "phys2d/CartPole-v0", '"gymnasium[jax]")'} <= words
    assert {"Pendulum-v1", "HalfCheetah-v5", "Taxi-v4", "FrozenLake-v1"} <= words
    assert not {"HalfCheetah-v2", "tabular/CliffWalking-v0"} & words  # they cannot be learned
    assert {*NETWORKS, *OPTIMIZERS, "module:factory"} <= words


def test_without_ale_py_the_list_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gossamer.envs.catalogue._has_atari", lambda: False)
    paper, screen = console()
    overview(paper)
    assert f"none; run {install('atari')}" in screen.getvalue()


def test_on_a_narrow_terminal_the_table_of_defaults_is_divided() -> None:
    screen = io.StringIO()
    show("paac", Console(file=screen, width=80, force_terminal=True, color_system=None))
    lines = screen.getvalue().splitlines()
    assert not any("\N{HORIZONTAL ELLIPSIS}" in line for line in lines)
    heads = [line.split() for line in lines if line.startswith("  option ")]
    shown = [word for head in heads for word in head[1:]]
    assert len(heads) > 1
    assert shown == [
        "a2c",
        "pixels",
        "a2c",
        "vector",
        "a2c",
        "continuous",
        "ppo",
        "pixels",
        "ppo",
        "vector",
        "ppo",
        "continuous",
        "paper",
    ]
    steps = [word for line in lines if line.startswith("  --steps ") for word in line.split()[1:]]
    assert steps[:3] == ["10,000,000", "200,000", "200,000"]
