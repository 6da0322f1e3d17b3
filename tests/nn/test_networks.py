"""Networks against sizes worked out by hand, against their own float32 selves, and in what they refuse."""

from __future__ import annotations

import contextlib
import math

import numpy as np
import pytest
import torch
from some_parts import a_network
from torch import Tensor, nn
from torch.testing import assert_close

from gossamer.config.names import NETWORKS, load
from gossamer.nn.inputs import centre_on
from gossamer.nn.networks import ActorCritic, Network, auto_encoders, reconstruction_loss
from gossamer.nn.torsos import (
    SEQUENCES,
    AutoEncoder,
    Layers,
    TorsoFactory,
    auto,
    autoencoder,
    layer_normalized,
    linear,
    mlp,
    nature,
    nips,
    resnet,
    small,
    tiny,
)
from gossamer.spaces import Box, Discrete, MultiDiscrete, Space, Spec
from gossamer.spaces.distributions import Distribution
from gossamer.spaces.observations import MASK, Layout, Part


def pictures(count: int, shape: tuple[int, ...], seed: int = 0) -> Tensor:
    """[N, *O] uint8"""
    rng = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count, *shape), generator=rng, dtype=torch.uint8)


@pytest.mark.parametrize(
    ("torso", "shape", "parameters", "features"),
    [
        # 84 -> (84-8)/4+1 = 20 -> (20-4)/2+1 = 9: 16 x (4 x 8 x 8) + 16, 32 x (16 x 4 x 4) + 32, 256 x (32 x 81) + 256
        (nips, (4, 84, 84), 4_112 + 8_224 + 663_808, 256),
        # 84 -> 20 -> 9 -> 7: 32 x 256 + 32, 64 x (32 x 16) + 64, 64 x (64 x 9) + 64, 512 x (64 x 49) + 512
        (nature, (4, 84, 84), 8_224 + 32_832 + 36_928 + 1_606_144, 512),
        # 42 -> (42-4)/2+1 = 20 -> 9: 16 x (4 x 4 x 4) + 16, 32 x (16 x 16) + 32, 256 x (32 x 81) + 256
        (small, (4, 42, 42), 1_040 + 8_224 + 663_808, 256),
        # Sections with 4, 16 and 32 input channels: a convolution and four of its own size; then 32 x 11 x 11
        (resnet, (4, 84, 84), 592 + 4 * 2_320 + 4_640 + 4 * 9_248 + 9_248 + 4 * 9_248 + 991_488, 256),
        # 42 -> 21 -> 10: 16 x (4 x 16) + 16, 32 x (16 x 16) + 32, 256 x (32 x 100) + 256; back by 2 x (256 x 21 x 21)
        # + 2 and 4 x (2 x 22 x 22) + 4
        (autoencoder, (4, 42, 42), 1_040 + 8_224 + 819_456 + 225_794 + 3_876, 256),
        # 64 x 50 + 64, 64 x 64 + 64
        (mlp, (50,), 3_264 + 4_160, 64),
    ],
)
def test_torsos_have_the_published_sizes(
    torso: TorsoFactory, shape: tuple[int, ...], parameters: int, features: int
) -> None:
    module = torso(shape)
    assert sum(p.numel() for p in module.parameters()) == parameters
    assert module(torch.zeros(3, *shape)).shape == (3, features)


@pytest.mark.parametrize(
    ("torso", "shape", "parameters"),
    [
        # 32 x 50 + 32, 16 x 32 + 16
        (mlp, (50,), 1_632 + 528),
        (auto, (50,), 1_632 + 528),
        # the convolutions of before, then 32 x (32 x 81) + 32 and 16 x 32 + 16
        (small, (4, 42, 42), 1_040 + 8_224 + 82_976 + 528),
        # the sections of before, then 32 x (32 x 11 x 11) + 32
        (resnet, (4, 84, 84), 592 + 4 * 2_320 + 4_640 + 4 * 9_248 + 9_248 + 4 * 9_248 + 123_936 + 528),
    ],
)
def test_hidden_sizes_and_activation_can_be_chosen(
    torso: TorsoFactory, shape: tuple[int, ...], parameters: int
) -> None:
    module = torso(shape, Layers((32, 16), "elu"))  # type: ignore[call-arg]  # of the package's own, not of a user's
    assert sum(p.numel() for p in module.parameters()) == parameters
    assert module(torch.zeros(3, *shape)).shape == (3, 16)
    kinds = {type(each) for each in module.modules()}
    assert nn.ELU in kinds
    assert not kinds & {nn.ReLU, nn.Tanh}


def test_each_part_of_an_observation_has_the_hidden_sizes() -> None:
    layout = Layout((Part("eye", (3, 12, 12), np.dtype(np.uint8)), Part("arm", (5,), np.dtype(np.float32))))
    spec = Spec((layout.size,), np.dtype(np.uint8), Discrete(2), layout=layout)
    model = ActorCritic(spec, Network(layers=Layers((24,), "silu")))
    assert model.width == 2 * 24


@pytest.mark.parametrize(
    ("torso", "shape", "message"), [(nature, (50,), "use mlp"), (nature, (4, 42, 16), "too small"), (nips, (5,), "mlp")]
)
def test_observations_that_do_not_fit_are_refused(torso: TorsoFactory, shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        torso(shape)


@pytest.mark.parametrize(("torso", "shape"), [(small, (4, 42, 42)), (mlp, (6,)), (auto, (3, 7, 7))])
def test_layers_are_normalised_before_their_activation(torso: TorsoFactory, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    module = layer_normalized(torso(shape))
    assert isinstance(module, nn.Sequential)
    x, found = torch.randn(5, *shape), 0
    for layer in module:
        y = layer(x)
        if isinstance(layer, nn.GroupNorm | nn.LayerNorm):  # over all features [C, H, W] or [F] of an observation
            found += 1
            flat = x.flatten(1)
            expected = (flat - flat.mean(1, keepdim=True)) / (flat.var(1, correction=0, keepdim=True) + 1e-5).sqrt()
            assert_close(y.flatten(1), expected, atol=1e-5, rtol=1e-4)
        x = y
    weights = [each for each in module if isinstance(each, nn.Conv2d | nn.Linear)]
    assert found == len(weights)


@pytest.mark.parametrize("torso", [resnet, autoencoder])
def test_torsos_that_are_no_sequence_of_layers_cannot_be_normalised(torso: TorsoFactory) -> None:
    with pytest.raises(ValueError, match="needs a sequence of layers"):
        a_network((4, 42, 42), Discrete(2), torso, layer_norm=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_normalised_layers_learn_their_gains_and_begin_with_those_of_one(dtype: torch.dtype) -> None:
    model = a_network((4, 42, 42), Discrete(3), small, layer_norm=True, dtype=dtype)
    norms = [each for each in model.torso.modules() if isinstance(each, nn.GroupNorm | nn.LayerNorm)]
    assert [each.weight.unique().tolist() for each in norms] == [[1.0]] * 3
    policy, value = model(torch.randn(5, 4, 42, 42))
    (policy.parameters.square().sum() + value.sum()).backward()
    assert all(p.grad is not None and bool(p.grad.any()) for p in model.torso.parameters())


def test_each_part_of_an_observation_is_normalised_in_its_torso() -> None:
    layout = a_layout()
    spec = Spec((layout.size,), np.dtype(np.uint8), Discrete(3), layout=layout)
    model = ActorCritic(spec, Network(auto, layer_norm=True))
    norms = [each for each in model.torso.modules() if isinstance(each, nn.GroupNorm | nn.LayerNorm)]
    assert len(norms) == 3 + 2  # of the picture and of the vector
    assert model(packed(layout, 4))[1].shape == (4,)


def test_the_torsos_that_can_be_normalised_are_those_that_the_command_line_takes() -> None:
    found = []
    for name in NETWORKS:
        torso = load("", name, NETWORKS)
        with contextlib.suppress(ValueError):
            layer_normalized(torso((6,) if name == "mlp" else (4, 84, 84)))
            found.append(name)
    assert found == list(SEQUENCES)


def test_a_torso_must_answer_features() -> None:
    with pytest.raises(ValueError, match=r"must return \[N, F\], not \[1, 3, 2\]"):
        a_network((3, 2), Discrete(2), lambda shape: nn.Identity())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("torso", "shape"), [(small, (4, 42, 42)), (mlp, (6,))])
def test_results_and_gradients_are_float32(torso: TorsoFactory, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    model = a_network(shape, Discrete(3), torso, dtype=dtype)
    policy, value = model(torch.randn(5, *shape))
    logits = policy.parameters
    assert (logits.shape, value.shape) == ((5, 3), (5,))
    assert logits.dtype == value.dtype == torch.float32
    (logits.square().sum() + value.sum()).backward()
    for name, parameter in model.named_parameters():
        assert parameter.dtype == torch.float32
        assert parameter.grad is not None, name
        assert parameter.grad.dtype == torch.float32
        assert parameter.grad.abs().sum() > 0, name


@pytest.mark.parametrize(
    ("torso", "shape"), [(small, (4, 42, 42)), (nips, (4, 84, 84)), (nature, (4, 84, 84)), (mlp, (50,))]
)
def test_bfloat16_is_close_to_float32(torso: TorsoFactory, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    full = a_network(shape, Discrete(6), torso, input_scale=1 / 64)
    half = a_network(shape, Discrete(6), torso, input_scale=1 / 64, dtype=torch.bfloat16)
    half.load_state_dict(full.state_dict())
    centre_on(full, {"": np.full(shape, 120, np.float32)})
    centre_on(half, {"": np.full(shape, 120, np.float32)})
    obs = pictures(16, shape)
    # bfloat16 rounds by up to 2^-9; over a few layers of sums, whose errors partly cancel, it stays within some 2^-7,
    # of the largest value here, since small ones are differences of large ones
    for grads in (False, True):
        with torch.set_grad_enabled(grads):
            (policy, value), (half_policy, half_value) = full(obs), half(obs)
            for exact, rounded in ((policy.parameters, half_policy.parameters), (value, half_value)):
                assert (exact - rounded).abs().max() < 2**-6 * exact.abs().max()
    for model in (full, half):
        policy, value = model(obs)
        (policy.parameters.square().sum() + value.square().sum()).backward()
    for (name, p), q in zip(full.named_parameters(), half.parameters(), strict=True):
        assert p.grad is not None
        assert q.grad is not None
        assert nn.functional.cosine_similarity(p.grad.flatten(), q.grad.flatten(), dim=0) > 0.99, name


def test_acting_and_learning_see_the_same_in_bfloat16() -> None:
    model = a_network((6,), Discrete(3), mlp, dtype=torch.bfloat16)
    obs = torch.randn(5, 6)
    learning = model(obs)
    with torch.no_grad():
        acting = model(obs)
    for one, other in ((acting[0].parameters, learning[0].parameters), (acting[1], learning[1])):
        assert_close(one, other, atol=2**-7, rtol=0)


def test_weights_changed_in_place_are_used_at_once_in_bfloat16() -> None:
    model = a_network((6,), Discrete(3), mlp, dtype=torch.bfloat16)
    obs = torch.randn(5, 6)
    with torch.no_grad():
        before = model(obs)[1]
        for parameter in model.torso.parameters():
            parameter.zero_()  # then all features are tanh(0)
        after = model(obs)[1]
    assert before.unique().numel() > 1
    assert after.tolist() == [0.0] * 5


def test_a_model_saves_no_cast_weights() -> None:
    model = a_network((6,), Discrete(3), mlp, dtype=torch.bfloat16)
    with torch.no_grad():
        model(torch.randn(5, 6))
    assert {tensor.dtype for tensor in model.state_dict().values()} == {torch.float32}


def test_orthogonal_weights() -> None:
    model = a_network((4, 42, 42), Discrete(3), small)
    for module in model.torso.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            rows = module.weight.flatten(1)
            assert_close(rows @ rows.T, 2.0 * torch.eye(len(rows)), atol=1e-4, rtol=0)  # gain sqrt(2), squared
            assert module.bias is not None
            assert not module.bias.any()
    assert_close(model.policy.weight @ model.policy.weight.T, 1e-4 * torch.eye(3))  # near uniform: gain 0.01
    assert model.value.weight.norm().item() == pytest.approx(1.0)


def test_uniform_weights_are_within_one_over_the_root_of_the_fan_in() -> None:
    model = a_network((4, 42, 42), Discrete(3), small, orthogonal=False)
    fans = [4 * 4 * 4, 16 * 4 * 4, 32 * 9 * 9, 256, 256]
    modules = [m for m in model.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    for module, fan in zip(modules, fans, strict=True):
        bound = 1 / math.sqrt(fan)
        largest = module.weight.abs().max().item()
        assert 0.95 * bound < largest <= bound  # of 256 draws and more, the largest is within 5 % of the bound


@pytest.mark.parametrize(
    ("shape", "same"), [((84,), mlp), ((4, 84, 84), nips), ((4, 42, 42), small), ((3, 7, 7), tiny), ((1, 1, 1), tiny)]
)
def test_the_torso_follows_the_observation(shape: tuple[int, ...], same: TorsoFactory) -> None:
    assert str(auto(shape)) == str(same(shape))
    assert auto(shape)(torch.zeros(2, *shape)).shape[0] == 2


def with_gradient(torso: nn.Module) -> set[str]:
    """The parts of a torso that have a gradient other than zero."""
    return {n.split(".")[0] for n, p in torso.named_parameters() if p.grad is not None and bool(p.grad.any())}


def test_a_separate_critic_shares_nothing_with_the_policy() -> None:
    model = a_network((3,), Discrete(2), mlp, separate_critic=True)
    policy, value = model(torch.randn(5, 3))
    value.sum().backward()
    by_value = with_gradient(model.torso)
    model.zero_grad(set_to_none=True)
    model(torch.randn(5, 3))[0].log_prob(torch.zeros(5, dtype=torch.int64)).sum().backward()
    by_policy = with_gradient(model.torso)
    assert (by_value, by_policy) == ({"value"}, {"policy"})
    assert policy.parameters.shape == (5, 2)


@pytest.mark.parametrize("state_std", [False, True])
def test_deviations_depend_on_the_observation_only_if_asked(state_std: bool) -> None:
    torch.manual_seed(0)
    model = a_network((3,), Box((-1.0, -1.0), (1.0, 1.0)), mlp, state_std=state_std, orthogonal=False)
    log_std = model(torch.randn(6, 3))[0].parameters[:, 2:]
    assert bool((log_std == log_std[0]).all()) != state_std


def a_layout(*, mask: bool = False) -> Layout:
    """A picture of two channels, a vector, and a mask of three actions."""
    parts = [Part("eye", (2, 12, 10), np.dtype(np.uint8)), Part("arm", (3,), np.dtype(np.float32))]
    return Layout((*parts, *([Part(MASK, (3,), np.dtype(np.uint8))] if mask else [])))


def packed(layout: Layout, count: int, *, valid: tuple[int, int, int] = (1, 1, 1)) -> Tensor:
    """[N, bytes]"""
    rng = np.random.default_rng(0)
    arrays = {
        "eye": rng.integers(0, 256, (count, 2, 12, 10), dtype=np.uint8),
        "arm": rng.standard_normal((count, 3), dtype=np.float32),
        MASK: np.tile(np.array(valid, np.uint8), (count, 1)),
    }
    return torch.from_numpy(layout.pack({part.name: arrays[part.name] for part in layout.parts}))


def test_each_part_of_an_observation_has_its_torso() -> None:
    layout = a_layout()
    spec = Spec((layout.size,), np.dtype(np.uint8), Discrete(3), layout=layout)
    model = ActorCritic(spec, Network(auto, input_scale=1 / 255, centre=True))
    centre_on(model, {"eye": np.full((2, 12, 10), 51, np.float32)})
    obs = packed(layout, 4)
    inputs = model.centre(obs, torch.float32)
    assert_close(inputs["eye"], (layout.part(obs, "eye").float() - 51) / 255)
    assert torch.equal(inputs["arm"], layout.part(obs, "arm"))
    # small: 12 x 10 -> 5 x 4 -> 1 x 1, 256 units; mlp: 64 units; side by side 320
    assert model.torso(inputs).shape == (4, 320)
    assert model(obs)[0].parameters.shape == (4, 3)


def test_a_linear_network_is_linear_in_every_part() -> None:
    layout = Layout((Part("arm", (3,), np.dtype(np.float32)), Part("leg", (2,), np.dtype(np.float32))))
    spec = Spec((layout.size,), np.dtype(np.uint8), Discrete(3), layout=layout)
    model = ActorCritic(spec, Network(linear))
    assert sum(each.numel() for each in model.parameters()) == (5 + 1) * (3 + 1)  # the two heads


def test_a_torso_of_one_s_own_gets_all_parts() -> None:
    layout, asked = a_layout(mask=True), []

    class Sees(nn.Module):
        def forward(self, parts: dict[str, Tensor]) -> Tensor:
            return torch.cat([parts["eye"].flatten(1), parts["arm"]], dim=1)

    def factory(shapes: dict[str, tuple[int, ...]]) -> nn.Module:
        asked.append(shapes)
        return Sees()

    spec = Spec((layout.size,), np.dtype(np.uint8), Discrete(3), layout=layout)
    model = ActorCritic(spec, Network(factory, own_torso=True))
    assert asked == [{"eye": (2, 12, 10), "arm": (3,)}]  # the mask is no input
    assert model(packed(layout, 2))[0].parameters.shape == (2, 3)


def test_a_masked_action_has_no_probability_and_the_others_are_renormalised() -> None:
    layout = a_layout(mask=True)
    spec = Spec((layout.size,), np.dtype(np.uint8), Discrete(3), layout=layout)
    torch.manual_seed(0)
    model = ActorCritic(spec, Network(auto, input_scale=1 / 255, orthogonal=False))
    whole = model(packed(layout, 5))[0].parameters.softmax(-1)
    masked, _ = model(packed(layout, 5, valid=(1, 0, 1)))
    pi = masked.parameters.softmax(-1)
    assert pi[:, 1].tolist() == [0.0] * 5
    assert_close(pi[:, 0], whole[:, 0] / (whole[:, 0] + whole[:, 2]))
    # p ln p with p = 0 is 0 and not NaN
    assert_close(masked.entropy(), -(pi[:, [0, 2]] * pi[:, [0, 2]].log()).sum(-1))
    assert_close(masked.kl(masked), torch.zeros(5))
    assert set(masked.sample(torch.Generator().manual_seed(0)).tolist()) <= {0, 2}


class Gives(nn.Module):
    """A policy head that gives the same outputs [N, P] for all features."""

    def __init__(self, outputs: Tensor) -> None:
        super().__init__()
        self.outputs = outputs

    def forward(self, features: Tensor) -> Tensor:
        return self.outputs


@pytest.mark.parametrize("actions", [Discrete(5), MultiDiscrete((2, 3))], ids=["discrete", "multi-discrete"])
def test_gradients_of_a_masked_policy_are_those_of_finite_differences(actions: Space) -> None:
    # Valid are all; two of five, or one of two and one of three; and two others, or one and one
    valid = torch.tensor([[1, 1, 1, 1, 1], [1, 0, 0, 0, 1], [0, 1, 0, 1, 0]], dtype=torch.uint8)
    layout = Layout((Part("arm", (3,), np.dtype(np.float32)), Part(MASK, (5,), np.dtype(np.uint8))))
    model = ActorCritic(Spec((layout.size,), np.dtype(np.uint8), actions, layout=layout), Network(mlp))
    obs = torch.from_numpy(layout.pack({"arm": np.ones((3, 3), np.float32), MASK: valid.numpy()}))
    rng = torch.Generator().manual_seed(0)

    def policy(outputs: Tensor) -> Distribution:
        model.policy = Gives(outputs)
        return model(obs)[0]

    outputs, others = (torch.randn(3, 5, generator=rng, dtype=torch.float64) for _ in range(2))
    action, other = policy(outputs).sample(rng), policy(others)
    for quantity in (lambda d: d.log_prob(action), lambda d: d.entropy(), lambda d: d.kl(other)):
        assert torch.autograd.gradcheck(lambda x, f=quantity: f(policy(x)), outputs.requires_grad_())
        (gradient,) = torch.autograd.grad(quantity(policy(outputs)).sum(), outputs)
        assert gradient[0].abs().min() > 0
        assert gradient[valid == 0].tolist() == [0.0] * 6  # of what is invalid


def test_an_autoencoder_s_loss_trains_its_encoder() -> None:
    torch.manual_seed(0)
    model = a_network((4, 42, 42), Discrete(3), autoencoder, input_scale=1 / 255)
    obs = pictures(8, (4, 42, 42)) // 64 * 64
    opt = torch.optim.Adam(model.parameters(), 1e-3)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    losses = []
    for _ in range(30):
        model(obs)
        loss = reconstruction_loss(auto_encoders(model))
        assert loss is not None
        opt.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        opt.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.5 * losses[0]
    moved = {name for name, p in model.named_parameters() if not torch.equal(p, before[name])}
    assert any("encoder" in name for name in moved)
    assert not any("policy" in name or "value" in name for name in moved)


def test_an_autoencoder_s_loss_is_that_of_the_last_pass_for_learning_and_counted_once() -> None:
    model = a_network((4, 42, 42), Discrete(3), autoencoder)
    obs = pictures(2, (4, 42, 42))
    with torch.no_grad():
        model(obs)
    assert reconstruction_loss(auto_encoders(model)) is None
    model(obs)
    (encoder,) = (module for module in model.modules() if isinstance(module, AutoEncoder))
    latent = encoder.encoder(model.centre(obs, torch.float32))
    wanted = (encoder.decoder(latent) - obs.float()).square().mean()
    found = reconstruction_loss(auto_encoders(model))
    assert found is not None
    assert_close(found, wanted)
    assert reconstruction_loss(auto_encoders(model)) is None
    assert reconstruction_loss(auto_encoders(a_network((4,), Discrete(3), mlp))) is None


@pytest.mark.parametrize("shape", [(4, 42, 42), (1, 9, 15), (3, 84, 84)], ids=str)
def test_pictures_are_decoded_as_the_decoder_s_modules_do(shape: tuple[int, ...]) -> None:
    coder = autoencoder(shape).to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # not in torch's stubs
    latent = torch.randn(3, 256, 1, 1, generator=torch.Generator().manual_seed(1)).requires_grad_()
    gradients = []
    for decode in (coder.decoder, coder.decoded):
        pictures = decode(latent)
        assert pictures.shape == (3, *shape)
        gradients.append(
            (pictures, *torch.autograd.grad(pictures.square().sum(), [latent, *coder.decoder.parameters()]))
        )
    for slow, fast in zip(*gradients, strict=True):
        assert_close(fast, slow, rtol=1e-4, atol=1e-4)


def test_an_autoencoder_needs_pictures() -> None:
    for shape in ((4,), (1, 7, 42)):
        with pytest.raises(ValueError, match="needs pictures"):
            autoencoder(shape)
    assert autoencoder((1, 9, 15))(torch.zeros(2, 1, 9, 15)).shape == (2, 256)
    with pytest.raises(ValueError, match=r"needs \[C, H, W\]"):
        resnet((4,))


@pytest.mark.parametrize("separate_critic", [False, True])
def test_joined_vectors_have_one_torso(separate_critic: bool) -> None:
    """The picture's torso, and one of 5 + 3 + 2 inputs and 64 units in place of three."""
    parts = (
        Part("eye", (1, 12, 12), np.dtype(np.uint8)), Part("arm", (5,), np.dtype(np.float32)),
        Part("leg", (3,), np.dtype(np.float32)), Part("hand", (2,), np.dtype(np.float32)),
    )  # fmt: skip
    layout = Layout(parts)
    spec = Spec((layout.size,), np.dtype(np.uint8), Discrete(3), layout=layout)
    model = ActorCritic(spec, Network(small, join_vectors=True, separate_critic=separate_critic))
    shapes = [tuple(each.shape) for name, each in model.torso.named_parameters() if each.shape[-1:] == (10,)]
    assert shapes == [(64, 10)] * (1 + separate_critic)
    assert model.width == 64 + small((1, 12, 12))(torch.zeros(1, 1, 12, 12)).shape[1]
    arrays = {part.name: np.zeros((2, *part.shape), part.dtype) for part in parts}
    rest = model(torch.from_numpy(layout.pack(arrays)))[1]
    for name in ("arm", "leg", "hand"):  # each part reaches the value
        moved = {**arrays, name: np.ones_like(arrays[name])}
        assert (model(torch.from_numpy(layout.pack(moved)))[1] != rest).all()
