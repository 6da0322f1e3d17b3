"""An actor: environments, a policy, and the running episodes. Several actors of a worker can act in turn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from gossamer.data import Final, Step, Trajectory, Tree, copied, merged_finals
from gossamer.envs.base import Restarting, Resumable, VectorEnv
from gossamer.envs.games import games_of
from gossamer.nn.memory import reset
from gossamer.policy import ActorPolicy
from gossamer.system.errors import EnvironmentFailed
from gossamer.system.transfers import copy_in, uploaded
from gossamer.task import Episode
from gossamer.workers.clock import Clock
from gossamer.workers.stepping import Ahead, InTurn, Stepping

DONE = object()  # what `next` returns at the end of a rollout


class Actor:
    """Fills trajectory slots in place. A step allocates and logs nothing, and waits only for the action."""

    def __init__(
        self,
        env: VectorEnv,
        policy: ActorPolicy,
        *,
        gamma: float,
        seed: int,
        clock: Clock,
        name: str = "",
        first: int = 0,
        ahead: bool = False,
    ) -> None:
        """`gamma`: discount per step; `name`: the environment's name, for `Episode`; `first`: the number of the first
        environment; `ahead`: the environments step while the actor is not running (see `steps`)."""
        self.env, self.policy, self.gamma, self.clock, self._first = env, policy, gamma, clock, first
        self._restarting = env if isinstance(env, Restarting) else None  # the check is too slow for each rollout
        self._obs = env.reset(seed)  # [B, *O]
        games, names = games_of(env.spec, self._obs), env.spec.games or (name,)
        self._names = [names[game] for game in games]  # [B]
        self._state: Tree = policy.initial_state(env.num_envs)  # before `_obs`
        self._scores = np.zeros(env.num_envs, np.float64)  # [B] scores of the running episodes
        self._lengths = np.zeros(env.num_envs, np.int64)  # [B] steps
        self._episodes: list[Episode] = []
        self._rewards = np.zeros((0, env.num_envs), np.float32)  # [T, B], copied to the device once per rollout
        self._discounts = np.zeros((0, env.num_envs), np.float32)
        self._begins = np.ones((1, env.num_envs), bool)  # [T+1, B] of an episode; the last row belongs to `_obs`
        self.stepping: Stepping = Ahead(env) if ahead else InTurn(env)

    def unroll(self, slot: Trajectory, position: int = 0) -> None:
        """Act for T steps and write them to `slot`. Its time 0 is time T of the previous rollout. `position`:
        environment steps in the run's budget before it.

        Raises `RuntimeError` if an environment truncates an episode without a final observation."""
        for _ in self.steps(slot, position):
            pass

    def steps(self, slot: Trajectory, position: int) -> Iterator[None]:
        """`unroll` in pieces: yields after the actions of each step have been sent to the environments."""
        rollout = slot.action.shape[0]
        if len(self._rewards) != rollout:
            self._rewards = np.zeros((rollout, self.env.num_envs), np.float32)
            self._discounts = np.zeros_like(self._rewards)
            self._begins = np.tile(self._begins[-1], (rollout + 1, 1))
        self._begins[0] = self._begins[-1]
        slot.finals.clear()
        slot.version.fill_(self.policy.refresh(position))
        for name, rows in self.policy.recorded(self._state).items():
            slot.state[name].copy_(rows)
        parameters = list[Tensor]()  # of the distributions over actions
        for t in range(rollout):
            with self.clock("inference"):
                copy_in(slot.obs[t], self._obs)
                answer, self._state = self.policy(slot.obs[t], self._state)
                slot.action[t], slot.value[t] = answer.action, answer.value
                if slot.chosen is not None:
                    assert answer.chosen is not None, "the experience wants action values, which this policy has not"
                    slot.chosen[t] = answer.chosen
                if answer.version is not None:
                    slot.version[t] = answer.version
                if answer.log_prob is None:
                    parameters.append(answer.parameters)
                else:
                    slot.behaviour[t] = answer.log_prob
                action = answer.action.cpu().numpy()
            self.stepping.send(action)
            yield
            with self.clock("env"):
                step = self.stepping.receive()
            self._record(t, step, slot)
        with self.clock("inference"):
            copy_in(slot.obs[rollout], self._obs)
            slot.value[rollout] = self.policy.value(slot.obs[rollout], self._state)
            if parameters:
                mu = self.env.spec.actions.distribution(torch.stack(parameters))
                slot.behaviour.copy_(mu.log_prob(slot.action))
            copy_in(slot.reward, self._rewards)
            copy_in(slot.discount, self._discounts)
            copy_in(slot.begins, self._begins)

    def _record(self, t: int, step: Step, slot: Trajectory) -> None:
        """Record the results of the environments' step at time t."""
        self._obs, self._begins[t + 1] = step.obs, step.over
        self._rewards[t] = step.reward
        self._discounts[t] = self.gamma * ~(step.terminated | step.truncated)
        if step.truncated.any():  # bootstrap truncated episodes: r + gamma V(final observation)
            self._add_finals(t, step, slot)
        self._scores += step.score
        self._lengths += 1
        if step.over.any():
            if self._state:
                self._state = reset(self._state, uploaded(torch.from_numpy(step.over), slot.obs.device))
            for b in np.flatnonzero(step.over):
                score, length, metrics = float(self._scores[b]), int(self._lengths[b]), step.metrics.get(int(b), {})
                self._episodes.append(Episode(score, length, self._names[b], self._first + int(b), metrics))
            self._scores[step.over], self._lengths[step.over] = 0.0, 0

    def _add_finals(self, t: int, step: Step, slot: Trajectory) -> None:
        """Add the values of the final observations of episodes truncated at time t, with the recurrent state of these
        episodes."""
        if step.final_obs is None:
            raise RuntimeError("the environment truncated an episode and gave no final observation")
        device = slot.obs.device
        final = uploaded(torch.from_numpy(step.final_obs[step.truncated]), device)
        cut = uploaded(torch.from_numpy(np.flatnonzero(step.truncated)), device)
        state = {name: rows[cut] for name, rows in self._state.items()}
        values = self.gamma * self.policy.value(final, state).cpu().numpy()
        recorded = self.policy.recorded(state)
        self._rewards[t, step.truncated] += values
        for i, b in enumerate(np.flatnonzero(step.truncated)):
            memory = {name: rows[i] for name, rows in recorded.items()}
            slot.finals.append(Final(t, int(b), final[i], memory, float(values[i])))

    def episodes(self) -> tuple[Episode, ...]:
        """Return the episodes that ended since the last call."""
        finished, self._episodes = tuple(self._episodes), []
        return finished

    def failures(self) -> tuple[EnvironmentFailed, ...]:
        """Return failures of environments that were restarted since the last call."""
        return self._restarting.failures() if self._restarting else ()

    def state_dict(self) -> Tree:
        """Return the state of the environments and running episodes; empty if the environments are not `Resumable`."""
        if not isinstance(self.env, Resumable):
            return {}
        return {
            "env": copied(self.env.state_dict()),
            "obs": np.array(self._obs),
            "scores": self._scores.copy(),
            "lengths": self._lengths.copy(),
            "begins": self._begins[-1].copy(),
            "memory": {name: each.clone() for name, each in self._state.items()},
        }

    def load_state_dict(self, state: Tree) -> None:
        """Restore a state of `state_dict`. An empty one has no effect: the episodes begun at construction continue."""
        if state and isinstance(self.env, Resumable):
            self.env.load_state_dict(state["env"])
            self._obs, self._scores, self._lengths = (np.array(state[k]) for k in ("obs", "scores", "lengths"))
            self._begins[-1] = state.get("begins", self._lengths == 0)  # version 0.1 saved none
            for name, rows in state.get("memory", {}).items():
                self._state[name] = rows.to(self._state[name])

    def close(self) -> None:
        """Wait until the environments are at rest."""
        self.stepping.close()


def alternate(actors: Sequence[Actor], slot: Trajectory, position: int) -> None:
    """Act for T steps with several actors in turn, each in its part of the environments of `slot`. While the
    environments of one step, the actions of the next are computed (Stooke and Abbeel 2018, section 3)."""
    parts, first = list[Trajectory](), 0
    for actor in actors:
        parts.append(slot.columns(first, first + actor.env.num_envs))
        first += actor.env.num_envs
    acting = [actor.steps(part, position) for actor, part in zip(actors, parts, strict=True)]
    while acting:
        acting = [each for each in acting if next(each, DONE) is not DONE]
    slot.finals[:] = merged_finals(parts)
