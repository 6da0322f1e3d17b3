"""Observations of every kind of space: converted exactly, packed and unpacked exactly, and refused by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from more_envs import NESTED, PICTURE, UNSUPPORTED, Shows, with_text

from gossamer.data import Array
from gossamer.envs.base import Resumable, UnsupportedSpace
from gossamer.envs.gym import Custom, vectorise
from gossamer.envs.local import Local
from gossamer.envs.single import EnvSource
from gossamer.envs.spaces import adapt
from gossamer.spaces.observations import Layout, Part
from gossamer.system.errors import EnvironmentFailed

BYTES, FLOATS = np.dtype(np.uint8), np.dtype(np.float32)


@pytest.fixture(autouse=True)
def users_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


def converted(space: gymnasium.Space[Any], value: Any) -> Array:
    return adapt("mine", Shows(space)).obs(value, {})


PIXELS = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)


@pytest.mark.parametrize(
    ("space", "value", "expected"),
    [
        (Discrete(4), 2, [0, 0, 1, 0]),
        (Discrete(3, start=5), np.int64(5), [1, 0, 0]),
        (Discrete(3), np.uint64(1), [0, 1, 0]),
        (MultiDiscrete([2, 3]), np.array([1, 0]), [0, 1, 1, 0, 0]),
        (MultiDiscrete([2, 3], start=[4, -1]), np.array([4, 1]), [1, 0, 0, 0, 1]),
        (MultiDiscrete([[2, 2], [2, 2]]), np.array([[0, 1], [1, 0]]), [1, 0, 0, 1, 0, 1, 1, 0]),
        (MultiBinary(3), np.array([1, 0, 1], np.int8), [1, 0, 1]),
        (MultiBinary([2, 2]), np.array([[1, 0], [1, 1]], bool), [1, 0, 1, 1]),
    ],
    ids=str,
)
def test_choices_and_switches_become_one_vector_of_bytes(
    space: gymnasium.Space[Any], value: Any, expected: list[int]
) -> None:
    spec = adapt("mine", Shows(space)).spec
    assert (spec.obs_shape, spec.obs_dtype, spec.layout, spec.pixels) == ((len(expected),), BYTES, None, False)
    assert converted(space, value).tolist() == expected
    assert converted(space, value).dtype == BYTES


def test_the_parts_of_nested_spaces_have_the_names_of_their_keys() -> None:
    spec = adapt("mine", Shows(NESTED)).spec
    # Dict spaces sort their keys: arm before camera before rest
    assert spec.parts == (
        Part("arm/angles", (2,), FLOATS),
        Part("arm/gripper", (3,), BYTES),
        Part("camera", (2, 3, 4), BYTES),
        Part("rest/0", (5,), BYTES),
        Part("rest/1", (5,), BYTES),
    )
    assert (spec.obs_shape, spec.obs_dtype, spec.pixels) == ((8 + 3 + 24 + 5 + 5,), BYTES, True)
    assert spec.shapes == "arm/angles [2], arm/gripper [3], camera [2, 3, 4], rest/0 [5], rest/1 [5]"


def test_every_part_is_unpacked_as_it_was() -> None:
    value = {
        "camera": PIXELS,
        "arm": {"angles": np.array([0.1, -0.7]), "gripper": -1},
        "rest": (np.array([0, 1, 1, 0, 1], np.int8), np.array([1, 2])),
    }
    adapter = adapt("mine", Shows(NESTED))
    packed, layout = adapter.obs(value, {}), adapter.spec.layout
    assert layout is not None
    for batch in (packed, packed[None], np.stack([packed, packed])):
        parts = layout.split(torch.from_numpy(batch))
        assert {name: part.dtype for name, part in parts.items()}["arm/angles"] == torch.float32
        for name, expected in {
            "arm/angles": np.array([0.1, -0.7], np.float32),
            "arm/gripper": [1, 0, 0],
            "camera": PIXELS,
            "rest/0": [0, 1, 1, 0, 1],
            "rest/1": [0, 1, 0, 0, 1],
        }.items():
            np.testing.assert_array_equal(parts[name].numpy().reshape(-1, *np.shape(expected))[-1], expected)
            np.testing.assert_array_equal(parts[name].numpy(), layout.array(batch, name))


@pytest.mark.parametrize(
    ("shape", "picture"),
    [
        ((84, 84, 3), (3, 84, 84)),
        ((3, 84, 84), (3, 84, 84)),
        ((210, 160, 3), (3, 210, 160)),
        ((4, 60, 80), (4, 60, 80)),
        ((8, 8, 111), (111, 8, 8)),  # planes of a board
        ((12, 10, 10), (12, 10, 10)),  # more pictures in a stack than rows
        ((5, 5, 5), (5, 5, 5)),  # [H, W, C]: any is as good
    ],
)
def test_the_sides_of_a_picture_tell_where_its_channels_are(shape: tuple[int, ...], picture: tuple[int, ...]) -> None:
    assert adapt("mine", Shows(Box(0, 255, shape, np.uint8))).spec.obs_shape == picture
    value = np.arange(np.prod(shape)).astype(np.uint8).reshape(shape)
    expected = value if picture == shape and shape != (5, 5, 5) else np.moveaxis(value, 2, 0)
    np.testing.assert_array_equal(converted(Box(0, 255, shape, np.uint8), value), expected)


@pytest.mark.parametrize(
    "space",
    [
        Box(-1, 1, ()),
        Box(-np.inf, np.inf, (5, 5)),
        Box(0, 5_976, (3, 4), np.int16),
        Box(0, 1, (7, 8)),  # 7 rows are too few for a picture
        Box(0, 2, (9, 9)),
        Box(np.array([[0.0] * 9] * 9), np.array([[1.0] * 8 + [2.0]] * 9), dtype=np.float64),
        Box(0, 255, (2, 1, 9, 9, 1), np.uint8),
    ],
    ids=str,
)
def test_arrays_that_are_no_pictures_become_vectors(space: Box) -> None:
    value = np.arange(np.prod(space.shape, dtype=int)).reshape(space.shape).astype(space.dtype)
    spec = adapt("mine", Shows(space)).spec
    assert (spec.obs_shape, spec.obs_dtype, spec.pixels) == ((value.size,), FLOATS, False)
    assert converted(space, value).tolist() == list(range(value.size))


@pytest.mark.parametrize(
    ("dtype", "most", "values", "pixels"),
    [
        (np.float32, 1, [0, 1, 0.5, 0.1, 1.001, -0.001], [0, 255, 128, 26, 255, 0]),  # 127.5 to the even 128; 25.5 too
        (np.float64, 255, [0, 255, 127.5, 254.6, 1.4, 0.5], [0, 255, 128, 255, 1, 0]),
        (np.int64, 255, [0, 1, 2, 253, 254, 255], [0, 1, 2, 253, 254, 255]),
        (bool, 1, [0, 1, 1, 0, 1, 0], [0, 255, 255, 0, 255, 0]),
    ],
)
def test_numbers_with_the_shape_and_range_of_a_picture_become_bytes(
    dtype: type, most: int, values: list[float], pixels: list[int]
) -> None:
    space = Box(0, most, (8, 9, 6), dtype)
    spec = adapt("mine", Shows(space)).spec
    assert (spec.obs_shape, spec.obs_dtype, spec.pixels) == ((6, 8, 9), BYTES, True)
    found = converted(space, np.broadcast_to(np.array(values).astype(dtype), (8, 9, 6)))
    assert found.dtype == BYTES
    np.testing.assert_array_equal(found, np.broadcast_to(np.array(pixels)[:, None, None], (6, 8, 9)))


@pytest.mark.parametrize("shape", [(4, 12, 10, 3), (4, 3, 12, 10)])
def test_a_stack_of_pictures_is_one_picture(shape: tuple[int, ...]) -> None:
    value = np.arange(np.prod(shape)).astype(np.uint8).reshape(shape)
    frames = value if shape[1] == 3 else np.moveaxis(value, 3, 1)
    np.testing.assert_array_equal(converted(Box(0, 255, shape, np.uint8), value), frames.reshape(12, 12, 10))


def test_text_within_an_observation_is_left_out() -> None:
    adapter = adapt("mine", with_text())
    assert adapter.spec.shapes == "more/1 [2], place [2]"
    value = {"place": [0.5, -1], "mission": "get the key", "more": ("words", 1)}
    layout, packed = adapter.spec.layout, adapter.obs(value, {})
    assert layout is not None
    assert layout.array(packed, "more/1").tolist() == [0, 1]
    assert layout.array(packed, "place").tolist() == [0.5, -1]


@pytest.mark.parametrize("name", ["text", "sequence", "graph"])
def test_transformed_observations_are_supported(name: str) -> None:
    space = Box(-1, 1, (4,))
    made = gymnasium.wrappers.TransformObservation(Shows(UNSUPPORTED[name]), lambda obs: space.sample(), space)
    assert adapt("mine", made).spec.obs_shape == (4,)


@pytest.mark.parametrize("batch", [(), (1,), (2,), (3, 1), (3, 2)])
def test_a_part_need_not_be_aligned(batch: tuple[int, ...]) -> None:
    # The floats begin at byte 5, and torch views floats only at multiples of 4
    layout = Layout((Part("bytes", (5,), BYTES), Part("floats", (2,), FLOATS)))
    floats = np.arange(2 * np.prod(batch, dtype=int), dtype=np.float32).reshape(*batch, 2)
    packed = layout.pack({"bytes": np.full((*batch, 5), 7, np.uint8), "floats": floats})
    assert packed.shape == (*batch, 13)
    np.testing.assert_array_equal(layout.part(torch.from_numpy(packed), "floats").numpy(), floats)
    assert (layout.part(torch.from_numpy(packed), "bytes") == 7).all()


def test_pictures_of_a_dict_are_ordered_as_those_that_are_alone() -> None:
    for shape, first in (((3, 4, 2), PIXELS.reshape(3, 4, 2)[..., 0]), ((4, 6), PIXELS.reshape(4, 6))):
        space = Dict({"camera": Box(0, 255, shape, np.uint8)})
        adapter = adapt("mine", Shows(space))
        assert adapter.spec.layout is not None
        found = adapter.spec.layout.array(adapter.obs({"camera": PIXELS.reshape(shape)}, {}), "camera")
        np.testing.assert_array_equal(found[0], first)


def test_a_tuple_is_also_a_list_and_a_dict_has_any_order() -> None:
    pair = Tuple([Discrete(2), Discrete(2)])
    np.testing.assert_array_equal(converted(pair, [1, 0]), converted(pair, (1, 0)))
    both = Dict({"a": Discrete(2), "b": Discrete(3)})
    np.testing.assert_array_equal(converted(both, {"b": 2, "a": 0}), [1, 0, 0, 0, 1])


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("text", r"observations of Text\(.*\) are not supported; Box, .*of these are: use .*Transf.* of a fixed size"),
        ("sequence", r"observations of Sequence\(.*are not supported; Box"),
        ("graph", r"observations of Graph\(.*are not supported; Box"),
        ("only text", r"observations of Dict\(.*are not supported: they have no arrays"),
        ("huge", r"observations of Discrete\(65537\) .* would have 65,537 entries, more than 65,536: observe its feat"),
        ("empty", r"observations of Dict\(\) are not supported: they have no arrays"),
        ("only a mask", r"are not supported: they have no arrays"),
        ("wrong mask", r'"action_mask" of MultiBinary\(4\) are not supported: the actions need 3 entries; rename it'),
        ("twice", r"several keys are named 'a/b'"),
        (
            "nested mask",
            r'observations "inner/action_mask" are not supported: a mask must be a key of the outermost Dict',
        ),
    ],
)
def test_other_spaces_are_refused(name: str, told: str) -> None:
    with pytest.raises(UnsupportedSpace, match=rf"^mine: .*{told}"):
        adapt("mine", Shows(UNSUPPORTED[name]))


def test_every_unsupported_space_is_tried() -> None:
    (mark,) = test_other_spaces_are_refused.pytestmark  # type: ignore[attr-defined]
    assert [name for name, _ in mark.args[1]] == list(UNSUPPORTED)


class Wrong(Shows):
    """Its step gives `value`."""

    def __init__(self, space: gymnasium.Space[Any], value: Any) -> None:
        super().__init__(space)
        self._value = value

    def step(self, action: Any) -> Any:
        return self._value, *super().step(action)[1:]


ARM = Dict({"arm": Dict({"angles": Box(-1, 1, (2,)), "gripper": Discrete(3, start=1)})})


def an_arm(angles: Any = (0.0, 0.0), gripper: Any = 1) -> Any:
    return {"arm": {"angles": np.array(angles), "gripper": gripper}}


@pytest.mark.parametrize(
    ("space", "value", "told"),
    [
        (ARM, an_arm(angles=[0.0]), 'an observation "arm/angles" of shape (1,); its observation_space has (2,)'),
        (ARM, an_arm([0, np.nan]), 'an observation "arm/angles" that is not finite: component 1 is nan'),
        (ARM, an_arm(gripper=0), 'an observation "arm/gripper" with value 0; it must lie in 1..3'),
        (ARM, an_arm(gripper=4), 'an observation "arm/gripper" with value 4; it must lie in 1..3'),
        (ARM, an_arm(gripper=1.0), 'an observation "arm/gripper" of float64; its observation_space has integers'),
        (ARM, {}, "an observation with keys none; its observation_space has arm"),
        (
            ARM,
            {"arm": {"angles": np.zeros(2)}},
            'an observation "arm" with keys angles; its observation_space has angl',
        ),
        (ARM, an_arm() | {"leg": 1}, "an observation with keys arm, leg; its observation_space has arm"),
        (ARM, np.zeros(2), "an observation of ndarray, not a dict"),
        (Tuple([Discrete(2)]), (1, 1), "an observation with keys 0, 1; its observation_space has 0"),
        (Tuple([Discrete(2)]), {0: 1}, "an observation of dict, not a tuple"),
        (Dict({"camera": PICTURE}), {"camera": PIXELS * 1.0}, 'n "camera" of float64; its observation_space has uint8'),
        (Dict({"camera": PICTURE}), {"camera": PIXELS - np.int64(1)}, '"camera" with pixels from -1 to 22; they must'),
        (Box(-1, 1, (2, 2)), [[0, 1], [np.nan, 0]], "that is not finite: component 1, 0 is nan"),
        (Box(0, 1, (9, 9)), np.full((9, 9), 1.1), "with pixels from 1.1 to 1.1; they must lie in 0..1"),
        (Box(0, 255, (9, 9)), np.full((9, 9), np.nan), "with pixels from nan to nan; they must lie in 0..255"),
        (Discrete(3), 3, "step() gave an observation with value 3; it must lie in 0..2"),
        (Discrete(3), np.array([1]), "an observation of shape (1,); its observation_space has ()"),
        (MultiDiscrete([2, 2]), np.array([0, -1]), "an observation with value -1; it must lie in 0..1"),
        (MultiBinary(2), np.array([0, 2]), "an observation with switches from 0 to 2; they must be 0 or 1"),
    ],
)
def test_an_observation_that_does_not_fit_is_named(space: gymnasium.Space[Any], value: Any, told: str) -> None:
    env = Local(EnvSource("mine", lambda: Wrong(space, value)), 1)
    env.reset(seed=0)
    with pytest.raises(EnvironmentFailed) as caught:
        env.step(np.zeros(1, np.int64))
    assert str(caught.value).startswith("--env mine: environment 0: step() gave an observation")
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_environments_with_other_keys_are_told_apart() -> None:
    spaces = iter([Dict({"a": Discrete(2)}), Dict({"b": Discrete(2)})])
    with pytest.raises(
        EnvironmentFailed, match=r"observations b \[2\] of uint8; the first one has .* a \[2\] of uint8"
    ):
        Local(EnvSource("mine", lambda: Shows(next(spaces))), 2)


@pytest.mark.parametrize("name", ["nested", "discrete", "small_picture", "matrix", "float_picture", "with_text"])
def test_workers_give_the_same_observations_as_this_process(name: str) -> None:
    factory = Custom(f"more_envs:{name}")
    one, other = factory.make(4), factory.make(4, workers=2)
    assert one.spec == other.spec
    np.testing.assert_array_equal(one.reset(seed=3), other.reset(seed=3))
    for _ in range(9):  # truncated after 4 steps each
        a, b = one.step(np.zeros(4, np.int64)), other.step(np.zeros(4, np.int64))
        np.testing.assert_equal(vars(a), vars(b))
    other.close()


class Keeps(Shows):
    """Observes its age and place, and can be saved."""

    def __init__(self) -> None:
        super().__init__(Dict({"age": Discrete(5), "place": Box(-9, 9, (1,))}))
        self._place = 0.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        gymnasium.Env.reset(self, seed=seed)
        self._age = 0
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        self._age += 1
        return self._seen(), 1.0, False, self._age == 4, {}

    def _seen(self) -> Any:
        self._place = float(self.np_random.normal())
        return {"age": self._age, "place": np.array([self._place], np.float32)}

    def state_dict(self) -> Any:
        return {"random": self.np_random.bit_generator.state, "age": self._age}

    def load_state_dict(self, state: Any) -> None:
        self.np_random.bit_generator.state, self._age = state["random"], state["age"]


def test_a_dict_environment_goes_on_where_it_was_saved() -> None:
    make: Callable[[], Any] = lambda: vectorise(EnvSource("mine", Keeps), 3, 0)  # noqa: E731
    env, other = make(), make()
    assert isinstance(env, Resumable)
    env.reset(seed=1)
    for _ in range(6):
        env.step(np.zeros(3, np.int64))
    other.load_state_dict(env.state_dict())
    for _ in range(9):
        np.testing.assert_equal(vars(env.step(np.zeros(3, np.int64))), vars(other.step(np.zeros(3, np.int64))))


class FailsOnce(Shows):
    """Its first step fails."""

    failed = False

    def step(self, action: Any) -> Any:
        if not FailsOnce.failed:
            FailsOnce.failed = True
            raise OSError("no coal left")
        return super().step(action)


def test_a_restarted_dict_environment_is_cut_at_its_last_observation() -> None:
    FailsOnce.failed = False
    env = Local(EnvSource("mine", lambda: FailsOnce(NESTED), "restart"), 1)
    first = env.reset(seed=0)
    step = env.step(np.zeros(1, np.int64))
    assert step.truncated.all()
    np.testing.assert_array_equal(step.final_obs, first)


@pytest.mark.parametrize("widest", [np.finfo(np.float32).max, 1e9])
def test_bounds_that_say_nothing_of_the_values_are_none(widest: float) -> None:
    high = np.array([1.0, widest], np.float32)
    assert adapt("mine", Shows(Box(-high, high))).spec.bounds is None
    assert adapt("mine", Shows(Box(-high[:1], high[:1]))).spec.bounds == ((-1.0,), (1.0,))
