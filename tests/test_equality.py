"""On the real model every lossless method emits plain decoding's very ids, in fp32, and in bf16 where that is fast.

Where a row's bits do not depend on the rows beside it, nothing is forgiven. Where they do (fp32 without the compiled
attention), a first difference may be forgiven if the target itself could not decide, at most 1e-3 logits between its
two best tokens, and on at most one prompt in sixty. `make test-long` runs all prompts whole at 128 tokens; here, cut,
since most of the time goes into reading them, three in the dtype that `auto` takes and one in the other, of families
of their own.
"""

from dataclasses import replace
from functools import lru_cache

import pytest
import torch

from specdec_lib import catalog
from specdec_lib.bench.environment import read_ngram
from specdec_lib.bench.prompts import balanced, default_path, load_prompts
from specdec_lib.cards import Kit
from specdec_lib.catalog import needed_checkpoints
from specdec_lib.checkpoints.card import read_card
from specdec_lib.checkpoints.checkpoint_files import SHIPPED, CheckpointFolder, checkpoint_names
from specdec_lib.dice import Dice
from specdec_lib.heads.draft_lm import draft_lm
from specdec_lib.hub import load as models
from specdec_lib.index.store_build import build_store
from specdec_lib.loop import decode
from specdec_lib.sampling import Sampling
from specdec_lib.training.recipes import NGRAM

MARGIN, CUT = 1e-3, 400                            # logits; characters of a sample prompt
TRAINED = {name for name in checkpoint_names(SHIPPED)                   # what drafters there are for the default target
           if read_card(SHIPPED, name)["target"]["name"] == "smollm2-135m"}
METHODS = [name for name, card in catalog.methods().items()
           if card.lossless and name != "ar" and not catalog.missing(card) and set(needed_checkpoints(name)) <= TRAINED]
METHODS += [spec for spec in ("diffusion-draft(weights='diffusion-lm-aligned')",)
            if set(needed_checkpoints(spec)) <= TRAINED]
POLICIES = [f"eagle@{name}" for name, card in catalog.parts()["when"].items()
            if card.lossless and set(card.needs) <= TRAINED]
POLICIES += [f"{drafter}@{name}" for drafter in ("draft-model", "early-exit")
             for name in ("svip", "adaeagle(combined=True)", "tapout(level='depth')")]
POLICIES += ["eagle@svip@match", "eagle@typical", "eagle@top-beta(beta=1)"]     # rules that are strict at temperature 0


FASTEST = models.default_dtype("cpu")              # what a reader decodes in
OTHERS = {torch.float32} - {FASTEST}
only_fastest = pytest.mark.parametrize("world", [FASTEST], indirect=True, ids=str)


@pytest.fixture(scope="module", params=[FASTEST, *OTHERS], ids=str)
def world(request):
    """The default target, its tokenizer and a kit with the trained drafters."""
    target, text = models.load("smollm2-135m", dtype=request.param)
    shelf = CheckpointFolder(SHIPPED, target, text, readers={NGRAM: read_ngram})
    kit = Kit(target, text.facts, nodes=8, draft=draft_lm(shelf["draft-lm"].state, target.weights),
              checkpoints=shelf, parts=catalog.make_part)
    return kit, text


@lru_cache(12)
def reader_of(prompt: tuple[int, ...], target, drafter: str):
    """A target whose cache keeps the rows of this prompt, since reading takes long, and what this drafter taps."""
    return target.fresh()


def output(name: str, prompt, kit: Kit, tokens: int, dice=None):
    """Ids and, per emitted token, the margin between the two best logits."""
    reader = reader_of(tuple(prompt), kit.target, next(iter(needed_checkpoints(name)), ""))
    fresh = replace(kit, target=reader, indexes={}, memory={})
    options = {"dice": dice} if dice else {}
    *_, session = decode(prompt, fresh.target, *catalog.build(name, fresh), max_new_tokens=tokens, end=kit.facts.end,
                         sampling=fresh.sampling, **options)
    pairs = [pair for round in session.rounds
             for pair in round.row_stats.logits[list(round.row_stats.rows), :2].tolist()]
    return session.output, [first - second for first, second in pairs]


def samples():
    """One prompt of each of six families, cut."""
    return [replace(prompt, turns=(prompt.turns[0][:CUT],))
            for prompt in balanced(load_prompts(default_path()), 6)]


def differences(name: str, prompts, world, tokens: int) -> list[tuple]:
    """(question, position, both tokens, margin) of every first difference."""
    kit, text = world
    found = []
    for prompt in prompts:
        ids = text.encode_chat([prompt.turns[0]])
        key = (prompt.question_id, tokens, kit.target.dtype)
        if key not in PLAIN:
            PLAIN[key] = output("ar", ids, kit, tokens)
        plain, margins = PLAIN[key]
        mine, _ = output(name, ids, kit, tokens)
        if mine != plain:
            place = next((i for i, (a, b) in enumerate(zip(plain, mine, strict=False)) if a != b), len(plain) - 1)
            found.append((prompt.question_id, place, plain[place], mine[place], margins[place]))
    return found


PLAIN: dict = {}


@pytest.mark.parametrize("name", METHODS)
def test_a_lossless_method_emits_plain_decodings_ids(name, world):
    prompts, usual = samples(), world[0].target.dtype == FASTEST
    assert differences(name, prompts[::2] if usual else prompts[1:2], world, tokens=24) == []


@only_fastest
@pytest.mark.parametrize("spec", POLICIES)
def test_a_drafter_under_a_policy_of_length_emits_plain_decodings_ids(spec, world):
    assert differences(spec, samples()[1::3], world, tokens=24) == []


@only_fastest
@pytest.mark.parametrize("name", ["sam", "suffix-decoding", "respec"])
def test_copies_from_a_corpus_leave_plain_decodings_ids(name, world, tmp_path):
    """It holds the beginning of each answer, and then something else."""
    (kit, text), asked = world, []
    for prompt in samples()[::3]:
        ids = text.encode_chat([prompt.turns[0]])
        asked.append((ids, output("ar", ids, kit, 24)[0]))
    build_store(tmp_path / "answers.store", [(*answer[:16], *asked[0][0]) for _, answer in asked])
    for ids, plain in asked:
        fresh = replace(kit, target=kit.target.fresh(), store=str(tmp_path / "answers.store"), indexes={}, memory={})
        *_, session = decode(ids, fresh.target, *catalog.build(name, fresh), max_new_tokens=24, end=kit.facts.end)
        assert session.output == plain
        assert len(session.rounds) < 16            # without the corpus `sam` needs 21 and 23


@pytest.mark.long
@pytest.mark.parametrize("name", METHODS)
def test_on_every_shipped_prompt_a_difference_is_a_tie(name, world):
    found = differences(name, load_prompts(default_path()), world, tokens=128)
    if world[0].target.batch_invariant:
        assert found == []
    assert all(margin < MARGIN for *_, margin in found), f"(question, position, plain, {name}, margin): {found}"
    assert len(found) <= 1, f"ties on more than one prompt in sixty: {found}"


@only_fastest
def test_a_path_search_is_held_to_this_with_its_trigram(world):
    kit, _ = world
    assert catalog.build("diffuspec", replace(kit, target=kit.target.fresh())).what.proxy is not None


def test_sampled_ids_equal_plain_decodings_too_under_match(world):
    kit, text = world
    warm = replace(kit, sampling=Sampling(1.0, top_p=.9))
    prompt = text.encode_chat([samples()[2].turns[0]])
    plain, _ = output("ar", prompt, warm, 24, Dice(3))
    drafted, _ = output("sam", prompt, warm, 24, Dice(3))
    assert drafted == plain
    assert len(set(plain)) > 5
