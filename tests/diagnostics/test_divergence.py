"""Equal policies do not differ; others differ as their definition says; all on what the members themselves see."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from some_parts import Watcher, a_task

from gossamer.diagnostics.divergence import OBSERVATIONS, Policies, divergence
from gossamer.envs.toy import Catch
from gossamer.exchange import Alone
from gossamer.exchange.flat import Flat
from gossamer.launch.threads import threads
from gossamer.learner import build
from gossamer.loops import act_and_learn
from gossamer.program import Program

ENVS = 3


def test_two_coins() -> None:
    # p = (1/2, 1/2), q = (3/4, 1/4): KL(p || q) = 1/2 ln(2/3) + 1/2 ln 2, KL(q || p) = 3/4 ln(3/2) + 1/4 ln(1/2).
    # On a second observation they agree: half of it is left.
    p, q = torch.tensor([0.5, 0.5]).log(), torch.tensor([0.75, 0.25]).log() + 7  # any constant may be added to logits
    found = divergence(torch.stack([torch.stack([p, p]), torch.stack([q, p])]))
    there = 0.5 * np.log(2 / 3) + 0.5 * np.log(2)
    back = 0.75 * np.log(1.5) + 0.25 * np.log(0.5)
    np.testing.assert_allclose(found.numpy(), [[0, there / 2], [back / 2, 0]], atol=1e-7)


@pytest.mark.parametrize("pixels", [False, True])
def test_equal_policies_do_not_differ_and_others_do(pixels: bool) -> None:
    task = a_task(Catch(pixels))
    policies = Policies(task, ENVS)
    vector = Flat(build(task, task.env.make(1).spec)).vector
    other = vector + 0.1 * torch.randn(len(vector))
    found = policies.divergence([vector, vector.clone(), other])
    assert found.shape == (3, 3)
    assert found[:2, :2].max() < 1e-12
    assert found[2, :2].min() > 1e-4
    assert found[:2, 2].min() > 1e-4
    assert found[2, 2] == 0.0


def test_the_observations_are_many_different_ones_of_the_task_and_the_same_each_time() -> None:
    task = a_task(Catch())
    obs = Policies(task, ENVS).obs
    assert obs.shape == (OBSERVATIONS, 50)
    assert obs.dtype == torch.float32
    assert torch.equal(obs, Policies(task, ENVS).obs)
    assert not torch.equal(obs, Policies(a_task(Catch(), seed=2), ENVS).obs)
    assert len(obs.unique(dim=0)) > 30
    assert set(obs.sum(1).tolist()) <= {1.0, 2.0}  # boards with a ball and a paddle, which may be in one place


def test_the_background_is_the_members_own() -> None:
    task = a_task(Catch(pixels=True), steps=12, dtype=torch.bfloat16)
    program, watcher = Program("one"), Watcher()
    program.worker(act_and_learn)(task, Alone(), envs=ENVS)
    threads(program, watcher)
    weights = watcher.saved["act_and_learn"]["learner"]["model"]
    policies = Policies(task, ENVS)
    assert weights["centre.offset"].any()
    assert torch.equal(dict(policies.model.named_buffers())["centre.offset"], weights["centre.offset"])
    # and so its policy is the member's own, in float32 whatever the member computes in
    member = build(policies.task, task.env.make(1).spec)
    member.load_state_dict(weights)
    with torch.no_grad():
        logits = member(policies.obs)[0]
    assert torch.equal(policies.logits(Flat(member).vector), logits)
