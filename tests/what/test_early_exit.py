"""Early exit drafts with the target's own first layers, and verification resumes from their rows."""

from dataclasses import replace

import pytest
import torch

from specdec_lib import catalog
from specdec_lib.dice import Dice
from specdec_lib.heads.exits import exit_heads
from specdec_lib.loop import begin, decode, step
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.models.llama.weights import LayerWeights
from specdec_lib.types import NO_DICE, Budget, Draft, Refusal
from tests.worlds import PROMPT, SHAPE, WARM, network_kit, random_exits


def deeper_kit(layers=(1, 3)):
    """Four layers, exits after some of them."""
    shape = replace(SHAPE, layers=4)
    target = Transformer.random(shape, seed=2, dtype=torch.float64)
    return replace(network_kit(None), target=target, checkpoints={"early-exit": random_exits(shape, layers, (0, 2))})


@pytest.mark.parametrize("layer", [1, 3])
def test_it_drafts_what_a_truncated_model_predicts(layer):
    kit = deeper_kit()
    draft = kit.part("early-exit", layer=layer)(begin(PROMPT, 9), Budget(3), NO_DICE)
    cut = replace(kit.target.weights, layers=kit.target.weights.layers[:layer])
    head = exit_heads(kit.checkpoints["early-exit"].state, (layer,), kit.target.weights)[layer]
    text, alone = PROMPT, Transformer(cut)
    for token in draft.tokens:
        x = hidden_state(alone, text)
        assert token == (0, 2)[int(head(x).argmax())]
        text += (token,)
    assert len(draft) == 3
    assert draft.source == ("early-exit",) * 3


def hidden_state(cut: Transformer, text):
    """Hidden state after the last layer of the truncated model, before any norm."""
    lm = cut.fresh()
    lm.cache.align(text, Draft())
    return lm.run(len(text))[-1:]


class Counting:
    """A linear layer that counts its input rows."""

    def __init__(self, inner):
        self.inner, self.count = inner, 0

    def __call__(self, x):
        self.count += len(x)
        return self.inner(x)

    def dense(self):
        return self.inner.dense()


class Counted:
    """The target of a kit with row counters: in each layer, in the head and in the exit's head."""

    def __init__(self, kit):
        weights = kit.target.weights
        layers = [[Counting(linear) for linear in (w.qkv, w.out, w.gate_up, w.down)] for w in weights.layers]
        self.layers, self.head, self.exit = layers, Counting(weights.head), None
        weights = replace(weights, layers=tuple(LayerWeights(*layer) for layer in layers), head=self.head)
        self.kit, self.before = replace(kit, target=Transformer(weights)), [0] * (len(layers) + 2)

    def method(self, spec):
        method = catalog.build(spec, self.kit)
        head = method.what.model.head
        self.exit = Counting(head.head)
        method.what.model.head = replace(head, head=self.exit)
        return method

    def since(self):
        """Rows since the last call: one per layer (equal in its four products), then the head, the exit's head."""
        assert all(len({linear.count for linear in layer}) == 1 for layer in self.layers)
        now = [layer[0].count for layer in self.layers] + [self.head.count, self.exit.count]
        before, self.before = self.before, now
        return [a - b for a, b in zip(now, before, strict=True)]


def row_counts(kit, spec, prompt=PROMPT, remaining=20, sampling=None):
    """For each round (drafted, accepted, rows while drafting, rows while verifying); the prompt's rows are checked."""
    counted, found = Counted(kit), []
    method, session = counted.method(spec), begin(prompt, remaining, sampling=sampling)
    counted.kit.target.prefill(prompt[:-1])
    assert counted.since() == [len(prompt) - 1] * len(counted.layers) + [0, 0]

    def what(*args):
        draft = method.what(*args)
        found.append(counted.since())
        return draft

    while not session.done:
        session = step(session, counted.kit.target, method._replace(what=what), Dice(0))
        last = session.rounds[-1]
        drafting = found.pop() if found else [0] * (len(counted.layers) + 2)    # a budget of 0 calls no drafter
        yield len(last.draft), len(last.verdict.path), drafting, counted.since()


def rows_of_a_round(layer, layers, drafted):
    """Expected rows while drafting (one per token, up to the exit) and while verifying (the rest)."""
    return ([drafted] * layer + [0] * (layers - layer) + [0, drafted],
            [1] * layer + [drafted + 1] * (layers - layer) + [drafted + 1, 0])


@pytest.mark.parametrize("layer", [1, 2, 3])
def test_per_round_layers_below_the_exit_run_each_row_once_and_the_others_verify_the_draft(layer):
    outcomes = set()
    for prompt in (PROMPT, (2, 1), (0, 0, 2), (1, 1, 1, 0)):
        for drafted, kept, drafting, verifying in row_counts(deeper_kit((layer,)), "early-exit", prompt):
            assert (drafting, verifying) == rows_of_a_round(layer, 4, drafted), (prompt, drafted, kept)
            outcomes.add((drafted, kept))
    assert outcomes >= {(3, 0), (3, 3)}, "fully rejected and fully accepted"
    assert outcomes & {(3, 1), (3, 2)}, "partly accepted"
    assert outcomes & {(0, 0), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2)}, "the token limit ends a draft early"


@pytest.mark.parametrize("policy", ["confidence(depth=5,threshold=0.6)", "heuristic(start=2)",
                                    "fixed(depth=3,rate=0.5)"], ids=lambda spec: spec.partition("(")[0])
@pytest.mark.parametrize("sampling", [None, WARM], ids=["greedy", "sampled"])
def test_a_draft_cut_by_a_policy_costs_the_drawn_tokens_only(policy, sampling):
    lengths = set()
    rounds = row_counts(deeper_kit((2,)), f"early-exit@{policy}", remaining=40, sampling=sampling)
    for drafted, _, drafting, verifying in rounds:
        assert (drafting, verifying) == rows_of_a_round(2, 4, drafted)
        lengths.add(drafted)
    assert len(lengths) > 1


def test_no_layer_processes_a_row_twice():
    counted = Counted(deeper_kit((2,)))
    method = counted.method("early-exit")
    *_, last = decode(PROMPT, counted.kit.target, *method, max_new_tokens=20)
    drafted = sum(len(round.draft) for round in last.rounds)
    accepted = sum(len(round.verdict.path) for round in last.rounds)
    assert 0 < drafted > accepted
    rows = len(PROMPT) - 1 + len(last.rounds) + drafted                # the prompt, one token per round, the nodes
    assert counted.since()[:4] == [rows] * 4


def test_the_lowest_trained_exit_is_the_default_and_others_are_refused():
    kit = deeper_kit((3, 1))
    assert kit.part("early-exit").model.depth == 1
    with pytest.raises(Refusal, match="after 1, 3"):
        kit.part("early-exit", layer=2)


def test_only_tokens_of_its_vocabulary_are_drafted():
    part = deeper_kit().part("early-exit")
    assert {token for a in range(3) for token in part(begin((a, 1), 9), Budget(4), NO_DICE).tokens} <= {0, 2}
