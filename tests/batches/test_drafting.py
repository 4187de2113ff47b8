"""Drafters of a batch that ask their networks for scores share forwards, and draft what each drafts alone."""

from collections import Counter
from dataclasses import replace

import pytest
import torch

from specdec_lib import catalog
from specdec_lib.batches import drafting
from specdec_lib.batches.drafting import score_drafts
from specdec_lib.batches.loop import BatchRequest, decode_together
from specdec_lib.batches.supported import in_batch
from specdec_lib.bench.prompts import default_path, load_prompts
from specdec_lib.cards import Kit
from specdec_lib.checkpoints.checkpoint_files import SHIPPED, CheckpointFolder
from specdec_lib.dice import Dice
from specdec_lib.heads.draft_lm import draft_lm
from specdec_lib.heads.eagle import eagle_head
from specdec_lib.hub import load as models
from specdec_lib.hub.load import default_dtype
from specdec_lib.loop import begin, run
from specdec_lib.models.llama.config import LlamaConfig
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.models.llama.joint import member
from specdec_lib.scores import NO_DICE
from specdec_lib.sharing import ScoresRequest
from specdec_lib.types import Draft, Session
from specdec_lib.what.draft_model import DraftModel
from specdec_lib.what.eagle import Eagle
from tests.worlds import WARM, network_kit, random_eagle

LENGTHS = (9, 1, 4, 17, 2, 6, 3)                   # of the prompts, in tokens
LIMITS = (12, 7, 1, 15, 9, 20, 3)
SPECS = ("eagle(depth=3)", "draft-model(depth=4)", "eagle@svip(h=0.25)", "draft-model@confidence(threshold=0.6)",
         "eagle2(depth=3,width=2,nodes=5)", "sam+eagle2", "respec", "respec+lengthened")
FAST = default_dtype("cpu")


def alone(kit: Kit, spec: str, prompt, limit: int, id: str, dice=NO_DICE) -> Session:
    """The session of a decode alone."""
    kit = replace(kit, target=kit.target.fresh(), indexes={}, memory={})
    session = begin(prompt, limit, kit.facts.end, kit.sampling, id)
    *_, session = run(session, kit.target, catalog.build(spec, kit), dice, kit.memory)
    return session


def request(kit: Kit, spec: str, prompt, limit: int, id: str, dice=NO_DICE) -> BatchRequest:
    kit = replace(kit, target=member(kit.target), indexes={}, memory={})
    session = begin(prompt, limit, kit.facts.end, kit.sampling, id)
    return BatchRequest(session, kit.target, catalog.build(spec, kit), dice, kit.memory)


def together(requests, size: int, kit: Kit) -> list[Session]:
    shared = in_batch(kit.target)
    done = list(decode_together(requests, size, shared.score, fill=shared.fill))
    return [one.session for one in sorted(done, key=lambda one: one.number)]


def drafts(sessions) -> list:
    """Output, and of every round the drafted tokens and how many were accepted."""
    return [(one.output, [(round.draft.tokens, len(round.verdict.path)) for round in one.rounds])
            for one in sessions]


def asked_of(words) -> list[tuple]:
    return [(tuple(token % 3 for token in words(n, seed=n)), limit, str(i))
            for i, (n, limit) in enumerate(zip(LENGTHS, LIMITS, strict=True))]


@pytest.fixture
def spoken(words):
    """A kit whose text ends now and then, and prompts of several lengths."""
    kit = network_kit(sampling=None)
    return replace(kit, facts=replace(kit.facts, end=frozenset({2}))), asked_of(words)


@pytest.mark.parametrize("size", [1, 3, 7])
@pytest.mark.parametrize("spec", SPECS)
def test_ragged_drafts_ends_and_newcomers_leave_every_round_as_it_is_alone(spec, size, spoken):
    kit, asked = spoken
    plain = [alone(kit, spec, *one) for one in asked]
    assert len({len(round.draft) for one in plain for round in one.rounds}) > 1
    assert drafts(together((request(kit, spec, *one) for one in asked), size, kit)) == drafts(plain)


@pytest.mark.parametrize("spec", SPECS)
def test_sampled_drafts_are_those_of_the_same_random_numbers_alone(spec, words):
    kit = network_kit(WARM)
    asked = [(*one, Dice(4).fork(one[2])) for one in asked_of(words)]
    plain = [alone(kit, spec, *one) for one in asked]
    assert drafts(together((request(kit, spec, *one) for one in asked), 4, kit)) == drafts(plain)
    assert len({one.output for one in plain}) > 3


def test_methods_of_several_kinds_draft_in_one_batch_each_by_its_own_network(spoken):
    kit, asked = spoken
    trigram = replace(kit, draft=kit.checkpoints["ngram"])
    worlds = [(kit, "eagle"), (trigram, "draft-model"), (kit, "draft-model"), (kit, "sam"), (kit, "eagle(depth=2)"),
              (kit, "draft-model(depth=2)"), (trigram, "draft-model(depth=3)")]
    mixed = [(own, spec, *one) for (own, spec), one in zip(worlds, asked, strict=True)]
    assert drafts(together((request(*one) for one in mixed), 7, kit)) == drafts([alone(*one) for one in mixed])


@pytest.mark.parametrize("spec", ["eagle(depth=3)", "draft-model(depth=3)"])
def test_a_drafted_token_of_all_sequences_is_one_forward(spec, words, monkeypatch):
    kit = network_kit(sampling=None)
    asked = [request(kit, spec, tuple(token % 3 for token in words(n, n)), 12, str(n)) for n in (5, 9, 12)]
    shared, sizes, calls = in_batch(kit.target), [], Counter()
    for name in ("score_heads_together", "score_together"):
        plain = getattr(drafting, name)
        monkeypatch.setattr(drafting, name, lambda some, plain=plain: calls.update([len(some)]) or plain(some))

    def fill(questions):
        sizes.append(len(questions))
        return shared.fill(questions)

    done = list(decode_together(asked, 3, shared.score, fill=fill))
    drafted = [len(round.draft) for one in done for round in one.session.rounds]
    assert sizes[:3] == [3, 3, 3]
    assert sum(sizes) == sum(drafted)              # each drafted token is asked for once
    assert calls == Counter(size for size in sizes if size > 1)
    networks = [one.request.method.what for one in done]
    networks = [what.head if isinstance(what, Eagle) else what.model for what in networks]
    assert len({id(network.weights) for network in networks}) == 1


def test_a_level_of_all_trees_is_one_forward(words):
    kit = network_kit(sampling=None)
    spec = "sam+eagle2(threshold=9,depth=3,width=2,nodes=5)"                # nothing is copied
    asked = [request(kit, spec, tuple(token % 3 for token in words(n, n)), 12, str(n)) for n in (5, 9, 12)]
    shared, levels = in_batch(kit.target), []

    def fill(questions):
        levels.append([len(one.draft) for one in questions])
        return shared.fill(questions)

    done = list(decode_together(asked, 3, shared.score, fill=fill))
    assert levels[0] == [0, 0, 0]
    assert len(levels[1]) == 3
    assert 0 not in levels[1]                      # the frontiers of the first level
    assert max(len(round.draft) for one in done for round in one.session.rounds) > 3
    assert len(levels) <= 3 * max(len(one.session.rounds) for one in done)


def test_a_policy_stops_its_own_sequence_and_the_others_draft_on(spoken):
    kit, asked = spoken
    kit = replace(kit, facts=replace(kit.facts, end=frozenset()))
    sizes, shared = [], in_batch(kit.target)

    def fill(questions):
        sizes.append([len(one.draft) for one in questions])
        return shared.fill(questions)

    requests = [request(kit, "eagle@svip(h=0.25)", prompt, 20, id) for prompt, _, id in asked]
    list(decode_together(requests, 7, shared.score, fill=fill))
    assert all(len(set(lengths)) == 1 for lengths in sizes)
    first = sizes[:[lengths[0] for lengths in sizes].index(0, 1)]          # nobody is near its limit
    assert len({len(lengths) for lengths in first}) > 1


def test_requests_come_back_in_order_and_models_that_share_nothing_are_asked_alone(spoken):
    kit, _ = spoken
    text, more, target, capturing = (0, 2, 1, 0, 2), Draft((1,), (-1,)), kit.target, kit.draft.fresh()
    capturing.static = True                        # as a model whose steps are captured says of itself
    heads = [random_eagle(target.shape, (0, 1, 2), (0, 2), seed) for seed in (3, 8)]

    def asked():
        networks = [kit.draft.fresh(), eagle_head(heads[0], target.fresh()), kit.checkpoints["ngram"],
                    kit.draft.fresh(), eagle_head(heads[1], target.fresh()), target.fresh()]
        nodes = (Draft(), more, more, more, Draft(), more)
        return [ScoresRequest(network, text, draft) for network, draft in zip(networks, nodes, strict=True)]

    requests = asked()
    assert [drafting.forward_of(one)[0] for one in requests] == [
        drafting.score_together, drafting.score_heads_together, drafting.apart, drafting.score_together,
        drafting.score_heads_together, drafting.score_together]
    assert len({drafting.forward_of(one) for one in requests}) == 5
    assert drafting.forward_of(ScoresRequest(capturing, text, more)) == drafting.forward_of(requests[2])
    for found, one in zip(score_drafts(requests), asked(), strict=True):
        assert len(found) == 1 + len(one.draft)
        assert torch.allclose(found.logits, one.alone().logits)
    assert score_drafts([]) == []


def test_alone_a_drafter_runs_its_own_forwards_and_is_asked_for_nothing(spoken, monkeypatch):
    kit, asked = spoken
    for kind in (Eagle, DraftModel):
        monkeypatch.setattr(kind, "asking", lambda *_: pytest.fail("asked without a batch"))
    assert alone(kit, "eagle", *asked[0]).rounds
    assert alone(kit, "draft-model", *asked[0]).rounds


def test_no_draft_has_other_bits_where_the_target_promises_that(words):
    shape = LlamaConfig(layers=2, hidden=64, heads=2, kv_heads=1, head_dim=32, mlp=96, vocab=97, context=256)
    target = Transformer.random(shape, seed=6, dtype=FAST)
    kit = replace(network_kit(WARM), target=target, draft=target.first_layers(1),
                  checkpoints={"eagle": random_eagle(shape, (0, 1, 2), tuple(range(0, 97, 2)))})
    asked = [(words(n, seed=n), 14, str(n), Dice(2).fork(n)) for n in (3, 30, 8, 50, 2)]
    for spec in ("eagle", "draft-model"):
        plain, found = [alone(kit, spec, *one) for one in asked], together(
            (request(kit, spec, *one) for one in asked), 4, kit)
        stats = [[[round.draft.stats for round in one.rounds] for one in some] for some in (plain, found)]
        assert stats[0] == stats[1] or not target.batch_invariant


def test_on_the_real_model_three_prompts_draft_together_what_they_draft_alone():
    target, text = models.load("smollm2-135m", dtype=FAST)
    shelf = CheckpointFolder(SHIPPED, target, text)
    kit = Kit(target, text.facts, nodes=5, draft=draft_lm(shelf["draft-lm"].state, target.weights), checkpoints=shelf,
              parts=catalog.make_part)
    short = sorted(load_prompts(default_path()), key=lambda prompt: len(prompt.turns[0]))[:3]
    asked = [(text.encode_chat([prompt.turns[0]]), 12, str(prompt.question_id)) for prompt in short]
    for spec in ("eagle", "draft-model", "respec", "diffuspec", "early-exit"):
        plain = [alone(kit, spec, *one) for one in asked]
        assert sum(len(round.verdict.path) for one in plain for round in one.rounds) > 3
        assert drafts(together((request(kit, spec, *one) for one in asked), 3, kit)) == drafts(plain)
