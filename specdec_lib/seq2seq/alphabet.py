"""Graphemes and phonemes as token ids: what the encoder reads and what the decoder writes.

The 39 phonemes are those of the CMU pronouncing dictionary without the stress of vowels. A word boundary is a token of
its own on both sides, so that sentences are spelt with the same tokens as words.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from specdec_lib.types import Refusal

PAD, BEGIN, END, BOUNDARY = 0, 1, 2, 3             # of the decoder; PAD and END of the encoder too
PHONEMES = ("AA", "AE", "AH", "AO", "AW", "AY", "B", "CH", "D", "DH", "EH", "ER", "EY", "F", "G", "HH", "IH", "IY",
            "JH", "K", "L", "M", "N", "NG", "OW", "OY", "P", "R", "S", "SH", "T", "TH", "UH", "UW", "V", "W", "Y",
            "Z", "ZH")
LETTERS = " 'abcdefghijklmnopqrstuvwxyz"
NAMES = ("<pad>", "<begin>", "<end>", "|", *PHONEMES)
FIRST_LETTER = 3                                   # ids 0 to 2 of the encoder: PAD, unused, END
PHONEME_IDS = {name: token for token, name in enumerate(NAMES)}
LETTER_IDS = {letter: token for token, letter in enumerate(LETTERS, FIRST_LETTER)}
SOURCE_VOCAB, VOCAB = FIRST_LETTER + len(LETTERS), len(NAMES)


def source_ids(text: str) -> tuple[int, ...]:
    """The encoder's input for a word or several: lower-case letters, apostrophes, single blanks; then END.

    Refusal for any other character, and where no letter is left.
    """
    plain = " ".join(text.lower().replace("\u2019", "'").split())
    strange = sorted(set(plain) - set(LETTERS))
    if strange:
        raise Refusal(f"the pronouncing model reads the letters a to z, apostrophes and blanks, got {strange[0]!r}:"
                      " write the words out")
    if not plain.strip(" '"):
        raise Refusal("there is no letter to pronounce: give a word or several")
    return (*(LETTER_IDS[letter] for letter in plain), END)


def phoneme_ids(phonemes: Sequence[str]) -> tuple[int, ...]:
    """The decoder's tokens of these phonemes; digits of stress are dropped. Refusal for an unknown one."""
    bare = [name.rstrip("012") for name in phonemes]
    unknown = [name for name in bare if name not in PHONEME_IDS]
    if unknown:
        raise Refusal(f"there is no phoneme {unknown[0]!r}: take those of the CMU dictionary")
    return tuple(PHONEME_IDS[name] for name in bare)


def phoneme_text(ids: Iterable[int]) -> str:
    """Phonemes with blanks between, `|` between words; BEGIN, END and PAD are left out."""
    return " ".join(NAMES[token] for token in ids if token > END)
