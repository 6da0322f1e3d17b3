"""torch's optimizers without the calls that import its compiler, which nothing here uses: it takes 1.4 seconds.

torch wraps these methods so that a compiled program calls them as they are, and imports the compiler to do so. The
functions inside the wrappers are torch's own, so all numbers and `state_dict`s are those of torch's classes."""

from __future__ import annotations

import inspect

import torch
from torch.optim.optimizer import Optimizer


class Eager(Optimizer):
    """The base of optimizers; it replaces `torch.optim.Optimizer`."""

    add_param_group = inspect.unwrap(Optimizer.add_param_group)
    load_state_dict = inspect.unwrap(Optimizer.load_state_dict)
    state_dict = inspect.unwrap(Optimizer.state_dict)
    zero_grad = inspect.unwrap(Optimizer.zero_grad)


class Adam(Eager, torch.optim.Adam):
    step = torch.no_grad()(inspect.unwrap(torch.optim.Adam.step))


class RAdam(Eager, torch.optim.RAdam):
    step = torch.no_grad()(inspect.unwrap(torch.optim.RAdam.step))


class Adagrad(Eager, torch.optim.Adagrad):
    step = torch.no_grad()(inspect.unwrap(torch.optim.Adagrad.step))


class SGD(Eager, torch.optim.SGD):
    step = torch.no_grad()(inspect.unwrap(torch.optim.SGD.step))
