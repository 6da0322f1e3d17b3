import importlib.util
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gossamer.envs import MissingExtra, UnknownEnv, names, resolve
from gossamer.envs.atari import GALA, PAAC, Atari, AtariPreset, list_games
from gossamer.envs.base import near_names
from gossamer.envs.games import Games
from gossamer.envs.gym import Custom, Gym
from gossamer.envs.options import AleOptions, AtariOptions
from gossamer.envs.toy import Catch, Counter, Identity, Recall
from gossamer.spaces import Discrete
from gossamer.spaces.observations import MASK

without = importlib.util.find_spec("ale_py") is None
needs_atari = pytest.mark.skipif(without, reason="the extra [atari] is not installed")


@pytest.fixture
def no_atari(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [name for name in sys.modules if name.split(".")[0] == "ale_py"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "ale_py", None)  # as if it were not installed


@pytest.mark.usefixtures("no_atari")
def test_names_without_the_atari_extra() -> None:
    assert resolve("catch") == Catch()
    assert resolve("catch-pixels") == Catch(pixels=True)
    assert resolve("identity") == Identity()
    assert resolve("counter") == Counter()
    assert resolve("recall") == Recall()
    assert resolve("CartPole-v1") == Gym("CartPole-v1")
    assert names()["toy"] == ("catch", "catch-pixels", "identity", "counter", "recall")
    assert names()["atari"] == ()
    assert "CartPole-v1" in names()["gymnasium"]


@pytest.mark.usefixtures("no_atari")
def test_a_game_without_the_extra_says_which_command_installs_it() -> None:
    for game in ("pong", "gopher"):
        with pytest.raises(MissingExtra, match=rf'{game}.*pip install .*\[atari\]"'):
            resolve(game)
    with pytest.raises(MissingExtra, match="pip install"):
        Atari("pong").make(1)
    with pytest.raises(UnknownEnv, match="near: catch"):
        resolve("catchh")
    with pytest.raises(UnknownEnv, match="near: CartPole-v1"):
        resolve("CartPole-v3")


@needs_atari
def test_games_by_their_snake_case_names() -> None:
    assert resolve("pong") == Atari("pong", PAAC)
    assert resolve("space_invaders", preset="gala") == Atari("space_invaders", GALA)
    assert resolve("pong", preset=AtariPreset(size=42)) == Atari("pong", AtariPreset(size=42))
    assert names()["atari"] == list_games()
    assert {"pong", "breakout", "montezuma_revenge"} < set(list_games())


@needs_atari
def test_no_game_is_mistaken_for_a_misspelt_toy() -> None:
    assert [game for game in list_games() if near_names(game, names()["toy"])] == []


@needs_atari
def test_older_ids_of_ale_py_lead_to_the_games() -> None:
    for name in ("PongNoFrameskip-v4", "ponng"):
        with pytest.raises(UnknownEnv, match="near: pong"):
            resolve(name)
    assert not [id for id in names()["gymnasium"] if "Pong" in id]


def test_unknown_names_and_presets() -> None:
    with pytest.raises(UnknownEnv, match="'CartPoel-v1'; near: CartPole-v1"):
        resolve("CartPoel-v1")
    with pytest.raises(UnknownEnv, match="''"):
        resolve("")
    with pytest.raises(ValueError, match="unknown preset 'paca'; there are paac, gala, impala, machado"):
        resolve("catch", preset="paca")


def test_factories_are_looked_for_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    assert resolve("some_envs:Walk") == Custom("some_envs:Walk")
    with pytest.raises(UnknownEnv, match="near: some_envs:Walk"):
        resolve("some_envs:walk_")
    with pytest.raises(UnknownEnv, match="no module 'nowhere'"):
        resolve("nowhere:Some-v0")  # as Gymnasium's ids may be
    with pytest.raises(UnknownEnv, match="no module 'nowhere'"):
        resolve("nowhere:make")


@needs_atari
@pytest.mark.parametrize("options", [AtariOptions("pong"), AleOptions("ALE/Pong-v5"), AtariOptions("pong,breakout")])
def test_options_of_the_preprocessing_hold_for_one_game_and_for_several(options: AtariOptions | AleOptions) -> None:
    def presets(**changed: bool) -> list[tuple[bool, bool]]:
        env = replace(options, **changed).factory()
        games = [share.env for share in env.shares] if isinstance(env, Games) else [env]
        return [(game.preset.full_actions, game.preset.clip_reward) for game in games if isinstance(game, Atari)]

    assert set(presets()) == {(False, True)}
    assert set(presets(full_action_space=True, clip_rewards=False)) == {(True, False)}


@needs_atari
@pytest.mark.parametrize(("full", "actions", "masked"), [(False, 6, True), (True, 18, False)])
def test_several_games_have_the_union_of_their_actions_with_a_mask_or_all_18(
    full: bool, actions: int, masked: bool
) -> None:
    """Pong has 6 actions, Breakout 4 of these."""
    env = AtariOptions("pong,breakout", full_action_space=full).factory().make(2)
    try:
        assert env.spec.layout is not None
        assert (env.spec.actions, MASK in env.spec.layout.places) == (Discrete(actions), masked)
    finally:
        env.close()


@needs_atari
def test_ale_ids_mean_what_they_mean_in_gymnasium() -> None:
    import ale_py  # registers them
    import gymnasium

    ids = {id for id, spec in gymnasium.registry.items() if id.startswith("ALE/") and id.endswith("-v5")}
    assert len(ids) == len(list_games()) > 50
    for id in ids:
        env, given = resolve(id), gymnasium.spec(id).kwargs
        assert isinstance(env, Atari)
        assert env.game == given["game"]
        assert env.preset.sticky == given["repeat_action_probability"] == 0.25
        assert env.preset.frame_skip == given["frameskip"] == 4
        assert env.preset.full_actions == given["full_action_space"]
        assert env.preset.frame_cap == given["max_num_frames_per_episode"]
        assert (env.preset.noop_max, env.preset.life_loss_ends, env.preset.fire_reset) == (0, False, False)
    single = gymnasium.make("ALE/Pong-v5").action_space
    assert ale_py.__version__
    assert resolve("ALE/Pong-v5").make(1).spec.actions == Discrete(single.n)  # type: ignore[attr-defined]
    assert resolve("ALE/Pong-v5", preset="gala") == resolve("pong", preset="gymnasium")


@needs_atari
@pytest.mark.parametrize("name", ["ALE/Pnog-v5", "ALE/Pong-v4"])
def test_other_ale_ids_are_unknown(name: str) -> None:
    with pytest.raises(UnknownEnv, match=f"'{name}'; near: ALE/Pong-v5"):
        resolve(name)


@pytest.mark.usefixtures("no_atari")
def test_ale_ids_need_the_extra() -> None:
    with pytest.raises(MissingExtra, match=r"'ALE/Pong-v5' is an Atari game; .* pip install .*\[atari\]"):
        resolve("ALE/Pong-v5")


@pytest.mark.parametrize("name", ["catch", "CartPole-v1", pytest.param("pong", marks=needs_atari)])
def test_a_factory_bears_its_name(name: str) -> None:
    assert resolve(name).name == name
