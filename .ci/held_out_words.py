"""Writes data/g2p/held_out.jsonl: words and sentences of the held-out side. Needs the extra `seq2seq`.

python .ci/held_out_words.py
"""

import json

from specdec_lib.seq2seq.dictionary import HELD_OUT, dictionary_file, read_dictionary, records, split

_, held_out = split(read_dictionary(dictionary_file()))
HELD_OUT.write_text("".join(json.dumps(one) + "\n" for one in records(held_out, (300, 100))))
