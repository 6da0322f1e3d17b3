from gossamer.envs.base import env_seeds, missing_extra, near_names, unknown_env
from gossamer.system.installation import install


def test_seeds_of_environments_are_distinct_and_shared_by_no_other_run() -> None:
    runs = [env_seeds(seed, 64) for seed in range(20)]
    assert runs[3] == env_seeds(3, 64)
    assert len({seed for run in runs for seed in run}) == 20 * 64
    assert all(0 <= seed < 2**31 for run in runs for seed in run)  # ale-py takes 32 bits with sign


def test_near_names_see_through_spellings() -> None:
    known = ["pong", "space_invaders", "CartPole-v0", "CartPole-v1"]
    assert near_names("SpaceInvadersNoFrameskip-v4", known) == ["space_invaders"]
    assert near_names("ALE/Pong-v5", known) == ["pong"]
    assert near_names("cartpole", known) == ["CartPole-v1"]  # the latest version only
    assert near_names("zzz", known) == []


def test_errors_say_what_would_do() -> None:
    assert str(unknown_env("pongg", ["pong", "qbert"])) == "unknown environment 'pongg'; near: pong"
    assert str(unknown_env("zzz", ["pong"])) == "unknown environment 'zzz'; gossamer list shows all"
    assert install("atari") in str(missing_extra("Atari games", "atari"))
