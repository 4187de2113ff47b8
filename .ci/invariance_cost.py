"""What rows that do not depend on each other cost: the forward of each attention, alternating in one process.

    python .ci/invariance_cost.py [--repeats 60] [--threads 2] [--target FOLDER] [--dtype float32]

Medians over the repeats, as ratios to the attention whose rows depend on each other. `limit` is the highest ratio that
we accept. Measure on a machine that does nothing else. The dtype is the default of this machine; torch's kernels keep
bits in bfloat16 alone.
"""

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from random import Random
from statistics import median
from time import perf_counter

import torch

from specdec_lib.hub.load import default_dtype
from specdec_lib.hub.locate import DEFAULT, model_folder
from specdec_lib.models.llama import kernels
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.models.llama.packed_linear import PackedLinear
from specdec_lib.types import ROOT, Draft

KINDS = ("dependent", "torch", "compiled")
CASES = [("one row", 256, 0, 1.03), ("one row", 1024, 0, 1.03),
         *((kind, context, nodes, 1.05) for kind in ("chain", "tree") for context in (256, 1024) for nodes in (8, 16)),
         *(("tree", context, nodes, 1.05) for context in (256, 400) for nodes in (3, 4, 5)),
         ("prompt", 600, 0, 1.0)]


def models(target: Path, dtype: torch.dtype) -> dict[str, Transformer]:
    """The target with each attention; those that this machine has."""
    lm = Transformer.load(target, dtype)
    found = {kind: lm.fresh() for kind in KINDS}
    found["dependent"].layout = None
    found["torch"].layout = kernels.torch_layout(lm.shape) if dtype == torch.bfloat16 else None
    for model in found.values():
        model.table = model.angles()
    return {kind: model for kind, model in found.items()
            if kind == "dependent" or (model.layout and model.compiled_attention == (kind == "compiled"))}


def draft(kind: str, nodes: int, seed: int) -> Draft:
    """A chain, or a random tree of which each node follows one of the last four or the context."""
    dice = Random(seed)
    parents = [dice.choice([ROOT, *range(max(0, node - 4), node)]) for node in range(nodes)]
    return Draft(tuple(range(1000, 1000 + nodes)), tuple(parents if kind == "tree" else range(ROOT, nodes - 1)))


def forwards(lms: dict[str, Transformer], case: tuple, repeats: int) -> Iterator[dict[str, float]]:
    """Seconds of one forward with each attention, in turns that begin with another one each time."""
    kind, context, nodes, _ = case
    layers = lms["dependent"].weights.layers
    doubling = [linear for w in layers for linear in (w.qkv, w.out, w.gate_up, w.down) if linear.doubles]
    text = tuple(torch.randint(1000, (context + 1,), generator=torch.Generator().manual_seed(0)).tolist())
    for lm in lms.values():
        lm.cache.align((), Draft())
        if kind != "prompt":
            lm.prefill(text[:context])
    for turn in range(repeats):
        order = list(lms) if turn % 2 else list(lms)[::-1]
        yield {name: seconds(lms[name], name, text, context, draft(kind, nodes, turn % 8), kind == "prompt", doubling)
               for name in order}
    for linear in doubling:
        linear.doubles = True


def seconds(lm: Transformer, name: str, text: tuple[int, ...], context: int, nodes: Draft, prompt: bool,
            doubling: list[PackedLinear]) -> float:
    """Of one forward after `context` tokens, or of all of them; the cache is as before afterwards."""
    lm.answers.tokens = ()                         # compute the rows again
    for linear in doubling:
        linear.doubles = name != "dependent"
    start = perf_counter()
    lm(text, nodes)
    took = perf_counter() - start
    del lm.cache.rows.depth[0 if prompt else context:]
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=60)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--target", default=DEFAULT)
    parser.add_argument("--dtype", choices=("bfloat16", "float32"))
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    dtype = getattr(torch, given.dtype) if given.dtype else default_dtype("cpu")
    lms = models(model_folder(given.target), dtype)
    print(f"{dtype}, {given.threads} threads, load {os.getloadavg()[0]:.2f}, attentions: {', '.join(lms)}")
    print(f"{'case':>8} {'context':>8} {'rows':>5} {'dependent ms':>13}" + "".join(f"{k:>10}" for k in list(lms)[1:])
          + f"{'limit':>8}")
    for case in CASES:
        kind, context, nodes, limit = case
        times = list(forwards(lms, case, given.repeats if kind != "prompt" else max(4, given.repeats // 6)))[2:]
        middle = {name: median(turn[name] for turn in times) for name in lms}
        rows = context + 1 if kind == "prompt" else nodes + 1
        print(f"{kind:>8} {context:8} {rows:5} {middle['dependent'] * 1e3:13.2f}"
              + "".join(f"{middle[name] / middle['dependent']:10.3f}" for name in list(lms)[1:]) + f"{limit:8.2f}",
              flush=True)


if __name__ == "__main__":
    main()
