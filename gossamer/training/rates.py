"""The learning rate of a run that is resumed: what it is and will be, in one line."""

from __future__ import annotations

from gossamer.config.build import schedule
from gossamer.config.config import Config
from gossamer.system.errors import UserError


def check_rate(config: Config, steps: int) -> None:
    """Raise `UserError` if the learning rate is 0 for all steps of the run that are left after `steps`."""
    plan, total = schedule(config), config.run.steps
    if steps < total and plan.rate(steps) == 0:  # it does not rise again
        raise UserError(
            f"--steps {total}: the learning rate is 0 from step {plan.anneal_steps:,} on, and nothing more would "
            f"be learned; add --anneal-steps {total} (the rate falls over the whole run) or --final-fraction 0.1"
        )


def rates(config: Config, steps: int) -> str:
    """The learning rate after `steps` steps and at the end of the run, and the option that changes it where it has
    fallen before the end."""
    plan, total = schedule(config), config.run.steps
    now, then = plan.rate(steps), plan.rate(total)
    told = f"learning rate {now:.3g} now{' and' if now == then else f', {then:.3g}'} at the end (step {total:,})"
    if plan.final_fraction < 1 and 0 < plan.anneal_steps < total:
        told += f"; it falls until step {plan.anneal_steps:,}, with --anneal-steps {total} until the end"
    return told
