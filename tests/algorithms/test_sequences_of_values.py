"""Sequences of a network with memory: trained steps, where gradients reach, how states line up, priorities."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from gossamer.algorithms.losses import sequence_priority, sequence_q_learning
from gossamer.algorithms.rescaling import rescale
from gossamer.algorithms.sequences import SequenceErrors, trained_steps, unrolled
from gossamer.data import Trajectory, Tree

PRIORITY_ETA = 0.9


class Sums(nn.Module):
    """A network whose state is decay * state + observation, and whose two action values are gain * state and 0."""

    def __init__(self, decay: float = 1.0, gain: float = 1.0) -> None:
        super().__init__()
        self.decay, self.gain = nn.Parameter(torch.tensor(decay)), nn.Parameter(torch.tensor(gain))

    def initial_state(self, num_envs: int) -> Tree:
        return {"sum": torch.zeros(num_envs, 1)}

    def unroll(self, obs: Tensor, state: Tree, begins: Tensor) -> tuple[Tensor, Tree]:
        total, found = state["sum"], []
        for t in range(len(obs)):
            total = self.decay * total.masked_fill(begins[t].unsqueeze(1), 0.0) + obs[t]
            found.append(self.gain * torch.cat([total, torch.zeros_like(total)], 1))
        return torch.cat(found), {"sum": total}


def sequences(steps: int, count: int = 1) -> Trajectory:
    """Sequences whose observations are 1, 2, 3, .. and whose states are 100, 200, .."""
    slot = Trajectory.empty(steps, count, (1,), torch.float32, state={"sum": torch.zeros(count, 1)})
    for t in range(steps + 1):
        slot.obs[t] = t + 1.0
    slot.state["sum"].copy_(100.0 * torch.arange(1.0, count + 1).unsqueeze(1))
    return slot


@pytest.mark.parametrize("burn_in", [0, 2, 4])
def test_values_are_those_of_the_stored_state_and_all_observations_since(burn_in: int) -> None:
    """Two sequences from the states 100 and 200, and one that begins with an episode, whose state is none."""
    batch = sequences(4, count=3)
    batch.begins[0, 2] = True
    q = unrolled(Sums(), batch, burn_in)
    assert q[..., 0].tolist() == [[101, 201, 1], [103, 203, 3], [106, 206, 6], [110, 210, 10], [115, 215, 15]]


def test_no_gradient_reaches_the_burn_in_unless_an_episode_begins_with_it() -> None:
    """dQ(x_2)/d decay: from within an episode, the state after two steps, 100 + 1 + 2, is a constant: 103. From its
    beginning, x_2 + decay * (x_1 + decay * x_0) gives x_1 + 2 decay x_0 = 4."""
    for begins, slope in ((False, 103.0), (True, 4.0)):
        batch, model = sequences(2), Sums()
        batch.begins[0] = begins
        unrolled(model, batch, burn_in=2)[2, 0, 0].backward()  # type: ignore[no-untyped-call]
        assert model.decay.grad is not None
        assert model.decay.grad.item() == slope
    batch, model = sequences(2), Sums()
    q = unrolled(model, batch, burn_in=2)
    gradient = torch.autograd.grad(q[:2].sum(), [model.gain], allow_unused=True, retain_graph=True)[0]
    assert gradient is None or gradient.item() == 0


def test_the_trained_steps_follow_the_burn_in_and_end_with_the_episode() -> None:
    """Four sequences of five steps, two of them burn-in: within an episode; whose episode ends after three steps; after
    one; and one that begins with an episode, which ends after four."""
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 1], [1, 1, 0, 1], [1, 0, 0, 1], [1, 0, 0, 0]], dtype=torch.bool)
    exact = torch.tensor([False, False, False, True])
    found = trained_steps(mask, exact, burn_in=2)
    assert found.int().T.tolist() == [[0, 0, 1, 1, 1], [0, 0, 1, 0, 0], [0, 0, 0, 0, 0], [1, 1, 1, 1, 0]]
    assert torch.equal(trained_steps(mask, exact, burn_in=0), mask)


def test_priorities_mix_the_largest_error_and_the_mean_of_trained_steps() -> None:
    """Errors 1, 2 and 6 give 0.9 * 6 + 0.1 * 3 = 5.7; of the second sequence only the error 4; of the third none."""
    size = torch.tensor([[1.0, 9.0, 9.0], [2.0, 4.0, 9.0], [6.0, 9.0, 9.0]])
    trained = torch.tensor([[1, 0, 0], [1, 1, 0], [1, 0, 0]], dtype=torch.bool)
    assert_close(sequence_priority(size, trained, PRIORITY_ETA), torch.tensor([5.7, 4.0, 0.0]))


def test_the_loss_is_the_mean_over_trained_steps_with_the_weight_of_their_sequence() -> None:
    """Errors 1 and 3 of the first sequence with weight 1, 2 of the second with 0.5: (1 + 9 + 0.5 * 4) / 2 / 3."""
    q = torch.zeros(2, 2, 2)
    q[0, 0, 1], q[1, 1, 0] = 4.0, 7.0
    q.requires_grad_()
    action = torch.tensor([[1, 0], [0, 0]])
    target = torch.tensor([[5.0, 2.0], [-3.0, 0.0]])
    trained = torch.tensor([[True, True], [True, False]])
    loss = sequence_q_learning(q, action, target, trained, eta=PRIORITY_ETA, weight=torch.tensor([1.0, 0.5]))
    assert loss.total.item() == pytest.approx((1 + 9 + 0.5 * 4) / 2 / 3)
    parts = {name: part.item() for name, part in loss.parts.items()}
    assert parts == pytest.approx({"q": 4 / 3, "td_error": 2.0, "trained": 0.75})
    assert loss.priority is not None
    assert loss.priority.tolist() == pytest.approx([0.9 * 3 + 0.1 * 2, 2.0])
    loss.total.backward()  # type: ignore[no-untyped-call]
    assert q.grad is not None
    assert_close(q.grad, torch.tensor([[[0, -1.0], [-1, 0]], [[3, 0], [0, 0]]]) / 3)
    none = sequence_q_learning(q, action, target, torch.zeros_like(trained), eta=PRIORITY_ETA)
    assert none.total.item() == 0
    with pytest.raises(AssertionError, match="weight is"):
        sequence_q_learning(q, action, target, trained, eta=0.9, weight=torch.ones(3))


def test_first_priorities_are_errors_of_rescaled_values_by_the_same_rule() -> None:
    """One trained step: |h(1 + 0.5 * 8) - h(3)|. Its burn-in counts if the sequence begins with an episode:
    |h(2 + 0.5 * 3) - h(24)| is larger."""
    errors = SequenceErrors(n_step=1, burn_in=1, eta=PRIORITY_ETA, epsilon=0.0)
    reward = torch.tensor([[2.0] * 2, [1.0] * 2])
    begins = torch.tensor([[False, True], [False] * 2, [False] * 2])
    value, chosen = torch.tensor([[9.0] * 2, [3.0] * 2, [8.0] * 2]), torch.tensor([[24.0] * 2, [3.0] * 2])
    late = 6**0.5 - 2.0  # h(5) - h(3), with h(x) = sqrt(x + 1) - 1
    early = 5.0 - 4.5**0.5  # h(24) - h(3.5)
    found = errors(reward, torch.full_like(reward, 0.5), value, chosen, begins)
    assert found.tolist() == pytest.approx([late, 0.9 * early + 0.1 * (early + late) / 2])


def test_first_priorities_do_not_look_across_the_end_of_an_episode() -> None:
    """The second step ends the episode; the third belongs to the next one."""
    errors = SequenceErrors(n_step=3, burn_in=0, eta=1.0, epsilon=1e-3)
    reward, chosen = torch.tensor([[0.0], [1.0], [1000.0]]), torch.zeros(3, 1)
    discount = torch.tensor([[0.5], [0.0], [0.5]])
    begins = torch.tensor([[True], [False], [True], [False]])
    found = errors(reward, discount, torch.full((4, 1), 1000.0), chosen, begins)
    assert_close(found, rescale(torch.tensor([1.0]), 1e-3))
