"""The papers that this workbook builds on, by arXiv number or by name, and where each is named.

A name is the system's where it has one, else the authors'. The list is complete for numbers: a test finds each one that
the package or a notebook cites. Works that are cited by authors and year alone (Stern et al. 2018; Saxena 2023) stand
where they are used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

NUMBER = re.compile(r"(?<![\d.])(2[0-9](?:0[1-9]|1[0-2])\.\d{5})(?![\d.])")
WORKS = {
    "2110.02037": "Hoogeboom et al., autoregressive diffusion", "2203.11171": "Wang et al., self-consistency",
    "2203.16487": "SpecDec", "2211.17192": "Leviathan et al.", "2302.01318": "Chen et al., speculative sampling",
    "2305.09781": "SpecInfer", "2309.00071": "YaRN", "2309.08168": "Draft & Verify", "2310.18813": "Su et al., batches",
    "2311.08252": "REST",
    "2401.10774": "Medusa", "2402.12374": "Sequoia", "2402.13753": "LongRoPE", "2402.14160": "RSD",
    "2404.15778": "BASS", "2406.03736": "Ou et al., RADD", "2406.11838": "MAR", "2406.14066": "SmartSpec",
    "2408.05636": "SpecDiff",
    "2408.07978": "Daliri et al.", "2408.11049": "MagicDec", "2408.11850": "PEARL",
    "2410.17891": "DiffuLLaMA", "2410.18351": "AdaEDL", "2411.04975": "SuffixDecoding",
    "2411.11925": "Continuous speculative decoding", "2411.18462": "SVIP", "2412.18910": "AdaEAGLE",
    "2502.09992": "LLaDA", "2502.14856": "FR-Spec", "2502.16982": "Liu et al., Muon",
    "2503.00307": "ReMDM", "2503.00784": "DuoDecoding",
    "2503.01840": "EAGLE-3", "2505.22618": "Fast-dLLM", "2506.01979": "SpecBranch",
    "2506.02391": "Consultant Decoding", "2508.15487": "Dream", "2509.19368": "PPSD", "2510.02358": "DiffuSpec",
    "2510.04147": "SSD", "2510.05090": "Tolerator", "2510.19705": "Mohri et al., hierarchical speculative decoding",
    "2511.00606": "SpecDiff-2", "2511.01282": "ReSpec", "2511.02017": "TapOut", "2511.08923": "TiDAR",
    "2601.05524": "Double", "2602.01469": "P-EAGLE", "2602.06036": "DFlash", "2602.23881": "LK losses",
    "2604.12989": "DDTree", "2605.18810": "D-PACE", "2607.05147": "DSpark"}

UNNUMBERED = ("EAGLE-2", "LayerSkip", "SAM-Decoding", "Token Recycling")        # systems cited without a number
SPELLED = {"2302.01318": "Chen et al. 2023", "2502.16982": "Muon"}      # authors alone would name other works as well
LINK = re.compile(r"\[[^\[\]]*\]\([^()]*\.ipynb[^()]*\)")               # to another notebook
BREAK = re.compile(r"\\n\",\s*\"")                                     # between two lines of a notebook's cell


def cited(text: str) -> set[str]:
    """The arXiv numbers in a text."""
    return set(NUMBER.findall(text))


def named(text: str) -> set[str]:
    """The keys of `works_table` that a notebook or another text names, by number or by name; links to notebooks not."""
    plain = " ".join(LINK.sub(" ", BREAK.sub(" ", text)).split())
    names = {number: SPELLED.get(number, name.partition(",")[0]) for number, name in WORKS.items()}
    names |= {name: name for name in UNNUMBERED}
    return cited(text) | {key for key, name in names.items()                # the plain search is the faster one by far
                          if name in plain and re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", plain)}


def naming(paths: Iterable[Path], keys: Callable[[str], set[str]] = named) -> dict[str, list[str]]:
    """Key of `works_table` -> stems of the files that name the work, in the files' order; by number alone with `cited`.
    """
    found: dict[str, list[str]] = {}
    for path in paths:
        for key in keys(path.read_text(encoding="utf-8")):
            found.setdefault(key, []).append(path.stem)
    return found


def works_table(places: Mapping[str, list[str]]) -> list[dict]:
    """A row for each work, by name: year of the first version, number, and the files of `places` that name it.

    A work is found in `places` by its number. One of UNNUMBERED has neither year nor number, and is found by its name.
    """
    keys = sorted([*WORKS, *UNNUMBERED], key=lambda key: WORKS.get(key, key).lower())
    return [{"work": WORKS.get(key, key), "year": 2000 + int(key[:2]) if key in WORKS else None,
             "arXiv": key if key in WORKS else None, "named in": places.get(key, [])} for key in keys]
