"""The workbook on speculative decoding: one loop, three rooms (when, what, how), real models, honest numbers.

The ten-line door: `load` a target, then `decode` with one part from each room.
"""

import os

# Threads that wait sleep instead of spinning. On a machine with anything else to do, spinning threads hold the very
# cores that they wait for: measured beside one other process on two cores, 16 ms a token instead of 1,300. Read by
# OpenMP when torch is first imported, so it stands before every other import; a value of the user's own is kept.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from specdec_lib.dice import Dice  # noqa: E402
from specdec_lib.loop import decode  # noqa: E402
from specdec_lib.sampling import Sampling  # noqa: E402
from specdec_lib.types import Budget, Draft, Law, Refusal, Scores, Session, Verdict  # noqa: E402

__all__ = ["Budget", "Dice", "Draft", "Law", "Refusal", "Sampling", "Scores", "Session", "Verdict", "decode"]
