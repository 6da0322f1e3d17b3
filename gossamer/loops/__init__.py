"""The worker loops that every architecture is made of."""

from gossamer.loops.act import act
from gossamer.loops.act_and_learn import act_and_learn
from gossamer.loops.learn import learn
from gossamer.loops.load import load
from gossamer.loops.predict import end_requests, predict
from gossamer.loops.roles import Envs, Role, role

__all__ = ["Envs", "Role", "act", "act_and_learn", "end_requests", "learn", "load", "predict", "role"]
