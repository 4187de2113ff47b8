"""A drafter's vocabulary grows by the tokens of its text, whose logits are those of the target's output rows."""

import random
from dataclasses import replace

import pytest
import torch

from specdec_lib.heads.base import every_output_row
from specdec_lib.heads.block_diffusion import BlockHead
from specdec_lib.heads.draft_vocabulary import DraftVocabulary, side_by_side, text_rows
from specdec_lib.heads.eagle import EagleHead
from specdec_lib.heads.eagle_joint import ChainRequest, score_chains_together
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.models.llama.packed_linear import PackedLinear
from specdec_lib.types import Draft
from tests.heads.eagle_head import CHECKPOINT, IDS, SHAPE, TAPS, TARGET, far
from tests.worlds import random_block_diffusion

ROWS = torch.randn(97, 24, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
TEXT = (3, 8, 40, 8, 9, 96, 50)                    # 3, 40 and 96 are among the trained ones


def vocabulary(*texts):
    made = DraftVocabulary(torch.tensor(IDS), text_rows(torch.tensor(IDS), ROWS))
    for text in texts:
        made.read(text)
    return made


def eagle(text_tokens: bool, ids=IDS) -> EagleHead:
    state = CHECKPOINT.state | {"ids": torch.tensor(ids)}
    return EagleHead(state, TAPS, TARGET.fresh(), text_tokens=text_tokens)


def test_each_new_token_of_the_text_joins_once_behind_the_trained_ones():
    assert vocabulary(TEXT).ids.tolist() == [*IDS, 8, 9, 50]
    assert vocabulary(TEXT, (*TEXT, 9, 7, 3)).ids.tolist() == [*IDS, 8, 9, 50, 7]


@pytest.mark.parametrize("text", [(2, 3, 60), (8, 9, 50), (77, 3), (3, 8)])
def test_a_text_that_does_not_continue_the_last_one_starts_anew(text):
    assert vocabulary(TEXT, text).ids.tolist() == vocabulary(text).ids.tolist()


def test_without_output_rows_and_for_known_tokens_nothing_joins():
    closed = DraftVocabulary(torch.tensor(IDS))
    closed.read(TEXT)
    logits = torch.randn(2, len(IDS))
    for one in (closed, vocabulary((2, 3, 60))):
        assert one.ids.tolist() == list(IDS)
        assert one.joined(logits, torch.randn(2, 24)) is logits


@pytest.mark.parametrize("count", [1, 63, 64, 65])
def test_the_logits_are_products_with_the_rows_of_these_tokens(count):
    text = tuple(token for token in range(97) if token not in IDS)[:count]
    one, x = vocabulary(text), torch.randn(3, 24, dtype=torch.float64)
    assert far(one.joined(x @ ROWS[list(IDS)].T, x), x @ ROWS[one.ids].T) < 1e-12


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_a_vocabulary_that_grows_token_by_token_is_that_of_the_whole_text(dtype):
    rows, x = ROWS.to(dtype), torch.randn(3, 24).to(dtype)
    dice, grown = random.Random(2), DraftVocabulary(torch.tensor(IDS), text_rows(torch.tensor(IDS), rows))
    text, kept = (), []
    for step in range(90):
        text += (dice.randrange(97), dice.randrange(97))
        text = text[:4] if step == 60 else text    # another text
        with torch.inference_mode(step % 3 == 0):
            grown.read(text)
        whole = DraftVocabulary(torch.tensor(IDS), text_rows(torch.tensor(IDS), rows))
        whole.read(text)
        trained = x @ rows[list(IDS)].T
        assert torch.equal(grown.ids, whole.ids)
        assert torch.equal(grown.joined(trained, x), whole.joined(trained, x))
        kept.append((grown.ids, whole.ids))
    assert all(torch.equal(*pair) for pair in kept), "ids that were given out stay as they are"


def test_side_by_side_each_text_has_its_own_tokens_alone():
    some = [vocabulary(TEXT), vocabulary((2, 3)), vocabulary((8, 1))]
    x = torch.randn(3, 24, dtype=torch.float64)
    trained = x @ ROWS[list(IDS)].T
    words = side_by_side(some)
    logits = words.joined(trained, x)
    for at, one in enumerate(some):
        own = one.joined(trained[at:at + 1], x[at:at + 1])
        size = len(one.ids)
        assert torch.equal(words.ids[at, :size], one.ids)
        assert far(logits[at:at + 1, :size], own) < 1e-12
        assert float(torch.softmax(logits[at], -1)[size:].sum()) == 0
    assert side_by_side([vocabulary((2, 3))] * 2).joined(trained, x) is trained


@pytest.mark.parametrize("draft", [Draft(), Draft((8, 5), (-1, 0))], ids=["none", "chain"])
def test_a_head_scores_the_tokens_of_its_text_as_one_trained_for_them(draft):
    grown, wide, plain = eagle(True), eagle(False, (*IDS, 8, 9, 50)), eagle(False)
    scores = grown(TEXT, draft)
    assert scores.ids.tolist() == [*IDS, 8, 9, 50]
    assert far(scores.logits, wide(TEXT, draft).logits) < 1e-12
    assert far(scores.logits[:, :len(IDS)], plain(TEXT, draft).logits) == 0
    longer = (*TEXT, 11)
    assert far(grown(longer, Draft()).logits, eagle(False, (*IDS, 8, 9, 50, 11))(longer, Draft()).logits) < 1e-12


def test_a_greedy_chain_goes_on_from_a_token_of_the_text():
    (best,) = set(eagle(False).chain(TEXT, 1).best)
    rows = TARGET.weights.head.dense().clone()
    rows[8] = 2 * rows[best]                       # a token of the text, now twice as likely as the best trained one
    target = Transformer(replace(TARGET.weights, head=PackedLinear(rows)))
    for grows in (True, False):
        head, other = (EagleHead(CHECKPOINT.state, TAPS, target.fresh(), text_tokens=grows) for _ in range(2))
        other.weights = head.weights
        (shared,) = score_chains_together([ChainRequest(other, TEXT, 3)])
        alone = head.chain(TEXT, 3)
        assert alone.best[0] == (8 if grows else best)
        assert shared.best == alone.best
        assert far(shared.logits, alone.logits) < 1e-4


def test_a_block_has_candidates_from_its_text():
    checkpoint = random_block_diffusion(SHAPE, TAPS, IDS, candidates=12)
    grown = BlockHead(checkpoint.state, checkpoint.meta, TARGET.fresh(), text_tokens=True)
    state = checkpoint.state | {"ids": torch.tensor((*IDS, 8, 9, 50))}
    wide = BlockHead(state, checkpoint.meta, TARGET.fresh())
    one, other = grown(TEXT, 3), wide(TEXT, 3)
    seen = one.lattice.ids[:, :len(IDS)]
    assert torch.equal(seen, other.lattice.ids[:, :len(IDS)])
    assert one.tokens == other.tokens
    assert not set(seen.flatten().tolist()) <= set(IDS)


def test_packed_output_rows_that_are_not_the_embedding_stay_closed():
    tied = replace(TARGET.weights, shape=replace(SHAPE, tied=True))
    assert every_output_row(tied) is tied.embedding
    assert every_output_row(TARGET.weights) is TARGET.weights.head.weight
    packed = PackedLinear(torch.eye(24))
    packed.packed = True
    assert every_output_row(replace(TARGET.weights, head=packed)) is None
