"""Writes data/g2p/settings.json: `specdec` on shipped held-out spellings, over block lengths and settings of its rule.

python .ci/record_g2p.py
"""

import json
from pathlib import Path

from specdec_lib import catalog
from specdec_lib.cards import Kit, TokenizerFacts
from specdec_lib.checkpoints.checkpoint_files import SHIPPED, CheckpointFolder
from specdec_lib.recordings.block_runs import record_blocks, settings
from specdec_lib.seq2seq.alphabet import END, VOCAB
from specdec_lib.seq2seq.dictionary import HELD_OUT, read_held_out
from specdec_lib.seq2seq.stored import load_verifier
from specdec_lib.seq2seq.verifier import Verifier

target = Verifier(load_verifier()[0])
kit = Kit(target, TokenizerFacts(end=frozenset({END}), vocab=VOCAB), parts=catalog.make_part,
          checkpoints=CheckpointFolder(SHIPPED, target, None, "g2p"))
spelt = read_held_out()
some = [one for one in spelt if one.kind == "words"][:60] + [one for one in spelt if one.kind == "sentences"][:30]
out = Path(HELD_OUT).with_name("settings.json")
out.write_text(json.dumps(record_blocks(kit, some, 2, settings()), separators=(",", ":")) + "\n")
