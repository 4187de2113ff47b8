"""Several words in one forward: ragged sources, outputs, drafts and blocks give what each gives alone."""

from dataclasses import replace

import pytest
import torch

from specdec_lib import catalog
from specdec_lib.batches.loop import BatchRequest, decode_together
from specdec_lib.batches.supported import in_batch
from specdec_lib.bench.environment import open_environment
from specdec_lib.cards import Kit, TokenizerFacts
from specdec_lib.dice import Dice
from specdec_lib.loop import NO_DICE, begin, run
from specdec_lib.sampling import Sampling
from specdec_lib.seq2seq.alphabet import BEGIN, END, source_ids
from specdec_lib.seq2seq.dictionary import read_held_out
from specdec_lib.seq2seq.drafter import BlockDrafter, BlockRequest
from specdec_lib.seq2seq.joint import SharedForwards, member, read_together
from specdec_lib.seq2seq.stored import drafter_from
from specdec_lib.seq2seq.verifier import Verifier
from specdec_lib.types import Draft, Refusal
from tests.seq2seq.worlds import drafter_checkpoint, kit, network

NET, DRAFTER = network(), drafter_from(drafter_checkpoint()).double()
TEXTS = ("photograph", "a", "it's so", "tomatoes and many other words that are in a row of one", "be", "queue " * 15,
         "on")
SOURCES = [source_ids(text) for text in TEXTS]
LIMITS = (12, 30, 1, 40, 45, 25, 7)
TREE = Draft((11, 20, 12, 21, 22, 7), (-1, -1, 0, 1, 0, 4))
CHAIN = Draft((11, 12, 13), (-1, 0, 1))
METHODS = ("ar", "specdec(k=5)", "specdec(k=25)", "specdec@top-beta(beta=3,tolerance=1.0)", "token-recycling", "sam",
           "prompt-lookup")


def started(model: Verifier) -> Verifier:
    model.prefill(())
    return model


@pytest.mark.parametrize("first", [CHAIN, TREE, Draft()], ids=["chain", "tree", "none"])
def test_contexts_and_drafts_of_any_length_score_in_one_forward_what_they_score_alone(first):
    rounds = [[((BEGIN,), first), ((BEGIN, 10, 21, 9, 30), TREE), ((BEGIN, 7), Draft())],
              [((BEGIN, 11, 12, 40), CHAIN), ((BEGIN, 10, 21, 9, 30, 20, 21), CHAIN), ((BEGIN, 7, 8), TREE)],
              [((BEGIN, 11), Draft()), ((BEGIN, 10, 5), CHAIN), ((BEGIN, 7, 8, 11, 12), CHAIN)]]
    together = [started(Verifier(NET, source)) for source in SOURCES[2:5]]
    shared = SharedForwards()
    for asked in rounds:
        found = shared.score([(model, *one) for model, one in zip(together, asked, strict=True)])
        for scores, model, (tokens, draft) in zip(found, together, asked, strict=True):
            plain = Verifier(NET, model.source)(tokens, draft)
            assert torch.allclose(scores.logits, plain.logits, atol=1e-10)
            assert scores.best == plain.best
            own, other = scores.row_stats((0, len(draft))), plain.row_stats((0, len(draft)))
            assert torch.equal(own.ids, other.ids)
            assert own.lse == pytest.approx(other.lse)
            assert own.entropy == pytest.approx(other.entropy)


def test_accepted_tokens_of_a_chain_are_not_computed_again_and_a_tree_keeps_its_context():
    one, two, shared = Verifier(NET, SOURCES[0]), Verifier(NET, SOURCES[1]), SharedForwards()
    shared.score([(one, (BEGIN,), CHAIN), (two, (BEGIN, 4), TREE)])
    assert one.shared.common((BEGIN, 11, 12, 40)) == 3
    assert (two.shared.tokens, len(two.shared.values)) == ((BEGIN, 4), 2)


def test_blocks_of_any_size_after_any_prefix_are_what_each_drafter_fills_alone():
    heads = [BlockDrafter(DRAFTER, Verifier(NET, source)) for source in SOURCES[:4]]
    prefixes = [[(BEGIN,), (BEGIN, 10, 21), (BEGIN, 7), (BEGIN,)],
                [(BEGIN, 10, 22, 9), (BEGIN, 10), (BEGIN, 7, 8), (BEGIN, 5, 6, 7, 8, 9)]]
    sizes, shared = (5, 25, 1, 10), SharedForwards()
    for tokens in prefixes:
        asked = [BlockRequest(*one) for one in zip(heads, SOURCES[:4], tokens, sizes, strict=True)]
        for (chosen, stats), one in zip(shared.fill(asked), asked, strict=True):
            own, told = BlockDrafter(DRAFTER, Verifier(NET, one.source))(one.source, one.tokens, one.size)
            assert chosen == own
            assert [list(each) for each in stats] == [pytest.approx(list(each)) for each in told]
    assert [head.forwards for head in heads] == [2] * 4
    [(chosen, _)] = shared.fill([BlockRequest(heads[0], SOURCES[3], (BEGIN, 10), 6)])       # turned to another source
    assert chosen == BlockDrafter(DRAFTER, Verifier(NET, SOURCES[3]))(SOURCES[3], (BEGIN, 10), 6)[0]


def test_sources_read_at_once_are_those_read_alone():
    models = [Verifier(NET, source) for source in SOURCES]
    read_together(models)
    for model in models:
        alone = Verifier(NET, model.source)
        assert torch.allclose(model.encode(model.source), alone.encode(model.source), atol=1e-10)
        assert len(model.shared.source) == len(model.source)


def test_who_cannot_share_a_forward_is_refused():
    one, shared = Verifier(NET, SOURCES[0]), SharedForwards()
    for others in ([(one, (BEGIN,), CHAIN)], [(Verifier(network(5), SOURCES[0]), (BEGIN,), CHAIN)]):
        with pytest.raises(ValueError, match=r"stands in a batch once|the same network"):
            shared.score([(one, (BEGIN,), Draft()), *others])
    with pytest.raises(ValueError, match="stands in a batch once"):
        shared.fill([BlockRequest(BlockDrafter(DRAFTER, one), SOURCES[0], (BEGIN,), 5)] * 2)
    with pytest.raises(ValueError, match="at least one token"):
        shared.score([(one, (), Draft())])
    with pytest.raises(Refusal, match="holds 96 tokens"):
        shared.score([(one, (BEGIN, *[5] * 95), Draft((6,), (-1,)))])


def alone(spec: str, own: Kit, source, limit: int, id: str, dice=NO_DICE):
    own = replace(own, target=own.target.bound(source), indexes={}, memory={})
    session = begin(own.target.start, limit, own.facts.end, own.sampling, id, own.target.context, source)
    *_, session = run(session, own.target, catalog.build(spec, own), dice, own.memory)
    return session


def request(spec: str, own: Kit, source, limit: int, id: str, dice=NO_DICE) -> BatchRequest:
    own = replace(own, target=member(own.target.bound(source)), indexes={}, memory={})
    session = begin(own.target.start, limit, own.facts.end, own.sampling, id, own.target.context, source)
    return BatchRequest(session, own.target, catalog.build(spec, own), dice, own.memory)


def together(requests, size: int, target: Verifier) -> list:
    shared = in_batch(target)
    done = list(decode_together(requests, size, shared.score, fill=shared.fill, read=shared.read))
    return [one.session for one in sorted(done, key=lambda one: one.number)]


def world(sampling=None, end=frozenset()) -> Kit:
    """A kit of random networks in single precision, as checkpoints are; `end` are its end tokens."""
    found = kit(sampling)
    found.target.net.float()
    return replace(found, facts=replace(found.facts, end=end))


@pytest.mark.parametrize("spec", METHODS)
def test_words_of_any_length_are_said_as_alone_when_places_are_taken_by_the_next(spec):
    asked = [(source, limit, str(at)) for at, (source, limit) in enumerate(zip(SOURCES, LIMITS, strict=True))]
    free = [alone("ar", world(), *one).output for one in asked]
    own = world(end=frozenset({free[0][3], free[4][6]}))                   # so at least these two end early
    plain = [alone(spec, own, *one) for one in asked]
    assert "top-beta" in spec or (len(plain[0].output), len(plain[4].output)) <= (4, 7)
    assert len({len(one.rounds) for one in plain}) > 3
    for size in (1, 3, 16):
        found = together((request(spec, own, *one) for one in asked), size, own.target)
        assert [one.output for one in found] == [one.output for one in plain]
        assert [[round.draft.tokens for round in one.rounds] for one in found] == [
            [round.draft.tokens for round in one.rounds] for one in plain]


def test_sampled_words_are_those_of_the_same_random_numbers_alone():
    own = world(Sampling(1.0))
    asked = [(source, 10, str(at), Dice(7).fork(at)) for at, source in enumerate(SOURCES)]
    plain = [alone("specdec(k=5)", own, *one).output for one in asked]
    found = together((request("specdec(k=5)", own, *one) for one in asked), 4, own.target)
    assert [one.output for one in found] == plain


def test_every_drafter_of_a_batch_fills_its_block_in_the_same_forward():
    own, sizes = world(), []
    shared = in_batch(own.target)

    def fill(asked):
        sizes.append(len(asked))
        return shared.fill(asked)

    requests = [request("specdec(k=5)", own, source, 9, str(at)) for at, source in enumerate(SOURCES)]
    done = list(decode_together(requests, 7, shared.score, fill=fill, read=shared.read))
    drafting = [sum(bool(len(round.draft)) for round in one.session.rounds) for one in done]
    assert sizes[0] == 7
    assert (sum(sizes), len(sizes)) == (sum(drafting), max(drafting))


@pytest.mark.parametrize("kind", ["words", "sentences"])
def test_with_the_shipped_weights_in_single_precision_sixteen_at_once_say_what_each_says_alone(kind):
    world = open_environment("g2p", "cpu", "float32", 1)
    some = [one.source for one in read_held_out() if one.kind == kind][:30 if kind == "words" else 17]
    own = Kit(world.target, TokenizerFacts(end=frozenset({END})), checkpoints=world.checkpoints,
              parts=catalog.make_part)
    for spec in ("ar", "specdec(k=10)"):
        asked = [(source, 90, str(at)) for at, source in enumerate(some)]
        found = together((request(spec, own, *one) for one in asked), 16, world.target)
        assert [one.output for one in found] == [alone(spec, own, *one).output for one in asked]
