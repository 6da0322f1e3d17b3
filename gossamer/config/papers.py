"""The settings of the papers, as published or as in their authors' code."""

from __future__ import annotations

from gossamer.algorithms import A2C, AsyncPPO, VTrace
from gossamer.architectures import APPO, IMPALA, PAAC, PALA
from gossamer.config.config import OptimizationOptions, RunOptions
from gossamer.config.layers import Layer, sqrt_of_learners
from gossamer.envs.options import AleOptions, AtariOptions
from gossamer.exchange.gossip.options import follow
from gossamer.networks import NetworkOptions
from gossamer.optim import Adam, RMSPropTF, RMSPropTorch

PAPER_PAAC = Layer(
    "PAAC as published: the settings of its code, which differ from the paper in clip, entropy and steps (see docs)",
    (
        RunOptions(steps=80_000_000, rollout_length=5),
        PAAC(num_envs=32, env_workers=8),
        A2C(gae_lambda=1.0, value_coef=0.25, entropy_coef=0.02, loss_scale=5.0),
        NetworkOptions(torso="nips", input="unit", initialization="uniform"),
        RMSPropTF(decay=0.99, epsilon=0.1),
        OptimizationOptions(learning_rate=0.0007 * 32, anneal_steps=80_000_000, final_fraction=0.0, max_grad_norm=3.0),
    ),
)
_GOSSIP_CODE = (
    AtariOptions("", preprocessing="gala"),
    A2C(gae_lambda=1.0, value_coef=0.5, entropy_coef=0.01),
    NetworkOptions(torso="nature", input="unit"),
    RMSPropTorch(decay=0.99, epsilon=1e-5),
    OptimizationOptions(learning_rate=0.0007, anneal_steps=0, final_fraction=1.0, max_grad_norm=0.5),
)
PAPER_GALA = Layer(
    "GALA as published: the settings of its code, learning rate 7e-4 times the square root of the number of learners; "
    "our nature network has 64 channels in its third layer, GALA's has 32",
    (RunOptions(steps=40_000_000, rollout_length=5), *_GOSSIP_CODE),
    (sqrt_of_learners, follow),
)
PAPER_PALA = Layer(
    "PALA as published: the settings of its code, which are GALA's except for longer rollouts, an unscaled learning "
    "rate, and a process lock that keeps every learner from running ahead of its neighbour's messages",
    (
        RunOptions(steps=40_000_000, rollout_length=20),
        *_GOSSIP_CODE,
        PALA(sync="bounded", staleness=0, interval=1),
    ),
    (follow,),
)
PAPER_IMPALA = Layer(
    "IMPALA's settings for Atari games (table G.1), shallow network; the loss is a sum over 32 x 20 steps",
    (
        RunOptions(steps=50_000_000, rollout_length=20),
        AtariOptions("", preprocessing="impala"),
        IMPALA(num_envs=32),
        VTrace(gae_lambda=1.0, value_coef=0.25, entropy_coef=0.01, loss_scale=640.0),
        NetworkOptions(torso="nips", input="unit"),
        RMSPropTF(decay=0.99, epsilon=0.01),
        OptimizationOptions(learning_rate=6e-4, anneal_steps=50_000_000, final_fraction=0.0, max_grad_norm=40.0),
    ),
)
PAPER_APPO = Layer(
    "the settings of the authors' code for Pong: 42x42 pictures, auto-encoder, two passes over batches of 750 steps; "
    "its gradient clip of 10 is for sums over these steps",
    (
        RunOptions(steps=5_000_000, rollout_length=50),
        AtariOptions("", screen_size=42),
        AleOptions("", screen_size=42),
        APPO(num_envs=15, reuse=2, depth=5),
        AsyncPPO(
            gae_lambda=1.0,
            value_coef=1.0,
            entropy_coef=0.01,
            clip_range=0.3,
            epochs=1,
            num_minibatches=1,
            surrogate="behaviour",
        ),
        NetworkOptions(torso="autoencoder", input="unit"),
        Adam(epsilon=1e-8),
        OptimizationOptions(learning_rate=5e-4, anneal_steps=0, final_fraction=1.0, max_grad_norm=10 / 750),
    ),
)
PAPERS = {
    "paac": ("a2c", PAPER_PAAC),
    "gala": ("a2c", PAPER_GALA),
    "pala": ("a2c", PAPER_PALA),
    "impala": ("vtrace", PAPER_IMPALA),
    "appo": ("appo", PAPER_APPO),
}
