"""Options as keywords of `train` and `bench`, for mypy; tests/config/test_keywords.py writes this file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypedDict


class Keywords(TypedDict, total=False):
    """The composition determines which of them apply."""

    # run
    steps: int
    rollout_length: int
    alternating: bool
    seed: int
    device: str
    cuda_graphs: bool
    threads: int
    keep: int
    checkpoint_every: float
    init_from: str
    log: str
    eval_every: int
    eval_exact: bool
    eval_episodes: int
    eval_protocol: Literal["noop", "sticky"]
    # environment
    preprocessing: Literal["paac", "gala", "impala", "machado", "gymnasium"]
    screen_size: int
    screen_width: int
    frame_stack: int
    env_processes: int
    full_action_space: bool
    clip_rewards: bool
    env_kwargs: dict[str, Any]
    on_env_error: Literal["fail", "restart"]
    action_masks: bool
    action_bounds: Literal["clip", "squash", "none"]
    # architectures
    num_envs: int
    env_workers: int
    hosts: int
    learners: int
    statistics: Literal["shared", "own"]
    shards: int
    agents: int
    predictors: int
    trainers: int
    min_batch: int
    max_batch: int
    batch_timeout: float
    min_rollouts: int
    max_rollouts: int
    queue_size: int
    adjust_seconds: float
    most: int
    graph: str
    mixing: Literal["uniform", "push-sum"]
    sync: Literal["never", "bounded", "lock-step"]
    staleness: int
    interval: int
    group_size: int
    share: float
    select: Literal["random", "rotation", "changed"]
    outer_momentum: float
    outer_learning_rate: float
    staleness_decay: float
    diagnostics: bool
    message_format: Literal["fp32", "bf16", "int8"]
    error_feedback: bool
    learner_hosts: int
    actors: int
    batch_rollouts: int
    depth: int
    reuse: int
    replay_share: float
    replay_size: int
    parallel_loading: bool
    policy: Literal["replica", "served"]
    apart: bool
    bundles: int
    replay_shards: int
    max_ahead: int
    max_delay: int
    loss_deviations: float
    snapshot_seconds: float
    # algorithms
    gamma: float
    gae_lambda: float
    value_coef: float
    entropy_coef: float
    entropy_final_fraction: float
    loss_scale: float
    log_epsilon: float
    clip_range: float
    epochs: int
    num_minibatches: int
    normalize_advantage: bool
    rho_bar: float
    c_bar: float
    surrogate: Literal["behaviour", "impact", "decoupled"]
    target_period: int
    rescale_values: bool
    n_step: int
    double: bool
    dueling: bool
    huber: bool
    exploration: Literal["schedule", "by-environment", "mixed"]
    epsilon_start: float
    epsilon_end: float
    epsilon_steps: int
    epsilon_updates: int
    buffer_size: int
    batch_size: int
    samples_per_insert: float
    learning_starts: int
    priority_exponent: float
    importance_exponent: float
    save_replay: bool
    replay_dir: str
    rescaling_epsilon: float
    sequence_length: int
    burn_in: int
    replay_ratio: float
    priority_eta: float
    # network
    network: str
    hidden_sizes: Sequence[int] | str
    activation: Literal["tanh", "relu", "elu", "gelu", "silu"]
    input: Literal["background", "unit", "raw"]
    layer_norm: bool
    initialization: Literal["orthogonal", "uniform"]
    precision: Literal["auto", "fp32", "bf16"]
    join_vectors: bool
    separate_critic: bool
    normalize_observations: bool
    normalize_returns: bool
    state_std: bool
    memory: Literal["none", "lstm", "gru"]
    memory_units: int
    last_action_reward: bool
    observe_game: bool
    tilings: int
    tiles: int
    reconstruction_coef: float
    # optimizers
    learning_rate: float
    anneal_steps: int
    anneal_from: float
    final_fraction: float
    max_grad_norm: float
    epsilon: float
    momentum: float
    decay: float
