"""The workbook on speculative decoding: one loop, three rooms (when, what, how), real models, honest numbers.

The ten-line door: `load` a target, then `decode` with one part from each room.
"""

from specdec_lib.dice import Dice
from specdec_lib.loop import decode
from specdec_lib.sampling import Sampling
from specdec_lib.scores import Categorical, Scores
from specdec_lib.types import Budget, Draft, Refusal, Session, Verdict

__all__ = ["Budget", "Dice", "Draft", "Categorical", "Refusal", "Sampling", "Scores", "Session", "Verdict", "decode"]
