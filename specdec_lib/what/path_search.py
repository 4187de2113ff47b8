"""Path search: through the slots of a diffusion draft, the path whose tokens also follow each other.

Source: DiffuSpec (Li et al. 2025, arXiv 2510.02358), sections 3 to 4. The slots of one forward are predicted
independently, so the best tokens of all slots need not form a sentence. A beam search over the candidates (Eqs. 7 and
8, see lattice.py) adds the log-probabilities of a trigram. The choice of a token depends on tokens to its right, so
every node is deterministic at every temperature; its confidence is its probability in its own slot, whatever the
search. With `weight=1`, or without a trigram, the chain takes the best token of every slot: a search by slots alone
could only end it early, since a short path may have the better mean. Cost: the drafter's forward and the search, which
`analysis.diffuspec_ablation.search_ms` reads from a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp

from specdec_lib import lattice
from specdec_lib.cards import Card, Kit
from specdec_lib.lattice import SCORES, LatticeDrafter, Path, PathRules, Proxy
from specdec_lib.scores import TokenStats
from specdec_lib.trees import deterministic_tree, prune, with_notes
from specdec_lib.types import Budget, Draft, RandomNumbers, Refusal, Session

NAME, PROXY = "path-search", "ngram"
TOP = 16                                           # minimal number of candidates, so that end tokens are included
ALONE = f"no {PROXY} checkpoint for this target, so the search uses the slots alone: `specdec train {PROXY}` makes one"


@dataclass(frozen=True)
class PathSearch:
    """The best path through the lattice of `drafter`, or its best few as one tree.

    Notes of a draft: `generated`, tokens of the raw draft before an end token; `kept`, candidates of each slot;
    `changed`, tokens of the path that are not their slot's best; `unseen` as in the drafter; and `alone`, why no proxy
    was used, where one was requested.
    """

    drafter: LatticeDrafter
    proxy: Proxy | None = None
    weight: float = 0.5                            # lambda: of the slot's log-probability; the proxy has the rest
    beam: int = 3                                  # B
    mass: float = 0.8                              # tau: cumulative mass of the candidates of a slot
    cap: int = 15                                  # M_max: candidates of a slot at most
    score: str = "mean"
    keep_end: bool = True                          # end tokens stay candidates wherever the lattice has them
    first: int = 1                                 # the slot at which the search begins; those before keep their best
    tree: bool = False                             # submit all beams, up to the budget's width
    alone: str = ""                                # note if a proxy was requested and is missing

    @property
    def rules(self) -> PathRules:
        """The numbers of the search."""
        return PathRules(self.mass, self.cap, self.keep_end, self.weight, self.beam, self.score)

    @property
    def slots_alone(self) -> bool:
        """Whether nothing joins the slots."""
        return self.proxy is None or self.weight == 1

    def __call__(self, session: Session, budget: Budget, dice: RandomNumbers) -> Draft:
        from specdec_lib.models.path_beams import find_paths

        depth = min(budget.depth, budget.size)
        if depth < 1:
            return Draft()
        raw = lattice.to_host(self.drafter.lattice(session, depth, max(TOP, self.cap + 1)))
        asked = lattice.keep_best(raw, self.first - 1)
        found = find_paths(asked, session.tokens, session.end, self.proxy, self.rules)
        best = lattice.best_path(raw, session.end)
        paths = found.paths[:budget.width] if self.tree else (best if self.slots_alone else found.paths[0],)
        draft = prune(tree_of_paths(paths, found.slots, budget.size), budget)
        unseen = getattr(self.drafter, "unseen", lambda session, depth: 0)(session, depth)
        return with_notes(draft, generated=lattice.generated(raw, session.end), kept=found.kept,
                          changed=sum(a != b for a, b in zip(paths[0].tokens, best.tokens, strict=False)),
                          **({"unseen": unseen} if unseen else {}), **({"alone": self.alone} if self.alone else {}))


def tree_of_paths(paths: Sequence[Path], slots: Sequence[tuple[float, ...]], nodes: int) -> Draft:
    """These paths as a tree of at most `nodes` deterministic nodes, the best path first."""
    trie = deterministic_tree((path.tokens for path in paths), nodes, NAME)
    probs = {(i, token): exp(logp) for path in paths for i, (token, logp) in
             enumerate(zip(path.tokens, path.logp, strict=True), 1)}
    confidence = tuple(probs[place] for place in zip(trie.depths, trie.tokens, strict=True))
    stats = tuple(TokenStats(prob, *slots[depth - 1]) for prob, depth in zip(confidence, trie.depths, strict=True))
    return Draft(trie.tokens, trie.parents, stats=stats, source=trie.source, confidence=confidence)


def make(kit: Kit, drafter: str = "diffusion-lm", beam: int = 3, mass: float = 0.8, cap: int = 15,
         weight: float = 0.5, score: str = "mean", keep_end: bool = True, tree: bool = False,
         block: int | None = None, first: int = 1) -> PathSearch:
    """Searches the lattice of the part `drafter`, with blocks of `block` slots if given, and uses the kit's trigram.

    The defaults are DiffuSpec's except `score`: its sum over tokens ("sum") favours an early end. The search begins at
    slot `first`; with 2, ours, the first slot keeps its best token, since the drafter knows all tokens before it and
    the trigram two.
    """
    if first < 1:
        raise Refusal(f"first must be a slot, 1 or later, got {first}")
    if score not in SCORES or not 0 <= weight <= 1 or beam < 1 or cap < 1 or not 0 < mass <= 1:
        raise Refusal("beam and cap must be at least 1, mass above 0 and at most 1, weight from 0 to 1 and score one of"
                      f" {', '.join(SCORES)}, got {beam}, {cap}, {mass}, {weight} and {score!r}")
    part = kit.part(drafter, **({} if block is None else {"block": block}))
    if not hasattr(part, "lattice"):
        raise Refusal(f"{drafter} has no lattice to search: use a drafter that fills slots, such as diffusion-lm")
    proxy, alone = (None, "") if weight == 1 else proxy_of(kit)
    weight = 1.0 if proxy is None else weight
    return PathSearch(part, proxy, weight, beam, mass, cap, score, keep_end, first, tree, alone)


def proxy_of(kit: Kit) -> tuple[Proxy | None, str]:
    """The trigram of this target, or None and the reason."""
    if PROXY not in kit.checkpoints:
        return None, ALONE
    try:
        found = kit.checkpoints[PROXY]
    except Refusal as why:                         # the checkpoint belongs to another tokenizer
        return None, f"{ALONE} ({why})"
    if kit.facts.vocab and found.vocab != kit.facts.vocab:
        return None, f"{ALONE} (the trigram counts {found.vocab} tokens and the target knows {kit.facts.vocab})"
    return found, ""


CARD = Card(NAME, idea="search a diffusion draft's candidates for tokens that follow each other",
            source="DiffuSpec, arXiv 2510.02358", make=make, parts=("diffusion-lm",), prefers=(PROXY,),
            notebook="29_what_path_search")
