"""Sequences in a batch emit what they emit alone: any method, any raggedness, any size, places taken by newcomers."""

from dataclasses import dataclass, replace

import pytest
import torch

from specdec_lib import catalog
from specdec_lib.batches.loop import BatchRequest, decode_together
from specdec_lib.batches.supported import why_unbatched
from specdec_lib.bench.prompts import default_path, load_prompts
from specdec_lib.cards import Kit
from specdec_lib.dice import Dice
from specdec_lib.exact import distance, every_outcome
from specdec_lib.how.match import Match
from specdec_lib.hub import load as models
from specdec_lib.loop import begin, run
from specdec_lib.models.llama.config import LlamaConfig
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.models.llama.joint import member, score_together
from specdec_lib.scores import NO_DICE
from specdec_lib.types import Budget, Draft, Method
from specdec_lib.when.fixed import Fixed
from tests.cost.ticks import Ticks
from tests.worlds import TARGET, WARM, network_kit, true_law
from tests.worlds import kit as table_kit

SHAPE = LlamaConfig(layers=2, hidden=32, heads=4, kv_heads=2, head_dim=8, mlp=48, vocab=97, context=256)
LENGTHS = (9, 1, 4, 17, 1, 6, 2)                   # of the prompts, in tokens
LIMITS = (12, 7, 1, 15, 9, 20, 3)
END = frozenset({2})
TEXT_METHODS = [name for name in catalog.methods()                  # specdec has tests/seq2seq/test_joint.py
                if not why_unbatched(name) and name != "specdec"]


@pytest.fixture(scope="module")
def lm():
    torch.set_num_threads(1)
    return Transformer.random(SHAPE, seed=11, dtype=torch.float64)


@dataclass(frozen=True)
class Partly:
    """A drafter that knows the answer: it drafts some of the next tokens, and then a wrong one, by place and prompt."""

    answers: dict[str, tuple[int, ...]]

    def __call__(self, session, budget: Budget, dice) -> Draft:
        at, own = len(session.output), int(session.id)
        count = (5 * own + 2 * at) % (budget.depth + 1)
        right = (own + at) % (count + 1)
        known = self.answers[session.id][at:at + right]
        tokens = (known + tuple((token + 1) % SHAPE.vocab for token in self.answers[session.id][at + len(known):]))
        return Draft(tokens[:count], tuple(range(-1, len(tokens[:count]) - 1)))


def alone(kit: Kit, spec: str | Method, prompt, limit: int, id: str, dice=NO_DICE, end=END):
    """The session of a single decode."""
    kit = replace(kit, target=kit.target.fresh(), indexes={}, memory={})
    method = spec if isinstance(spec, Method) else catalog.build(spec, kit)
    *_, session = run(begin(prompt, limit, end, kit.sampling, id), kit.target, method, dice, kit.memory)
    return session


def request(kit: Kit, spec: str | Method, prompt, limit: int, id: str, dice=NO_DICE, end=END) -> BatchRequest:
    kit = replace(kit, target=member(kit.target), indexes={}, memory={})
    method = spec if isinstance(spec, Method) else catalog.build(spec, kit)
    return BatchRequest(begin(prompt, limit, end, kit.sampling, id), kit.target, method, dice, kit.memory)


def outputs(requests, size: int, score=score_together) -> list[tuple[int, ...]]:
    """The outputs in the order of the requests."""
    done = list(decode_together(requests, size, score))
    assert sorted(one.number for one in done) == list(range(len(done)))
    return [one.session.output for one in sorted(done, key=lambda one: one.number)]


def drafted(lm, words):
    """Prompts, the answers of plain decoding, and a method whose drafts are partly right."""
    kit = Kit(lm, parts=catalog.make_part)
    prompts = [words(n, seed=50 + n + place) for place, n in enumerate(LENGTHS)]
    whole = {str(i): alone(kit, "ar", prompt, max(LIMITS) + 8, str(i), end=frozenset()).output
             for i, prompt in enumerate(prompts)}
    return kit, prompts, whole, Method(Fixed(5), Partly(whole), Match())


@pytest.mark.parametrize("size", [1, 2, 3, 5, 9])
def test_ragged_acceptance_ends_and_limits_leave_every_answer_as_it_is_alone(lm, words, size):
    kit, prompts, whole, method = drafted(lm, words)
    ends = frozenset({whole["0"][3], whole["5"][6]})                      # at least these two end early
    asked = [(prompt, limit, str(i)) for i, (prompt, limit) in enumerate(zip(prompts, LIMITS, strict=True))]
    plain = [alone(kit, "ar", *one, end=ends).output for one in asked]
    assert len(plain[0]) <= 4 < LIMITS[0]
    assert len(plain[5]) <= 7 < LIMITS[5]
    assert outputs((request(kit, method, *one, end=ends) for one in asked), size) == plain


def test_drafts_and_acceptance_of_one_forward_are_ragged(lm, words):
    kit, prompts, _, method = drafted(lm, words)
    asked = (request(kit, method, prompt, 15, str(i), end=frozenset()) for i, prompt in enumerate(prompts[:5]))
    by_forward: dict[int, list] = {}
    for one in decode_together(asked, 5, score_together):
        for count, round in zip(one.forwards, one.session.rounds, strict=True):
            by_forward.setdefault(count, []).append((len(round.draft), len(round.verdict.path)))
    first = by_forward[0]
    assert len({count for count, _ in first}) > 2
    assert len({accepted for _, accepted in first}) > 1


@pytest.mark.parametrize("spec", [*TEXT_METHODS, "eagle@svip(h=0.9)", "sam(depth=1)"])
def test_every_supported_method_emits_its_single_ids(spec, words):
    kit = network_kit(sampling=None)
    asked = [(tuple(token % 3 for token in words(n, seed=n)), limit, str(i))
             for i, (n, limit) in enumerate(zip(LENGTHS, LIMITS, strict=True))]
    sessions = [alone(kit, spec, *one) for one in asked]
    assert outputs((request(kit, spec, *one) for one in asked), 3) == [session.output for session in sessions]
    assert spec == "ar" or sum(len(round.draft) for session in sessions for round in session.rounds)


@pytest.mark.parametrize("spec", ["sam", "draft-model", "eagle", "token-recycling"])
def test_sampled_answers_are_those_of_the_same_random_numbers_alone(spec):
    kit = network_kit(WARM)
    asked = [((i % 3, 1, 0, 2, 1)[:1 + i], 10, str(i), Dice(4).fork(i)) for i in range(5)]
    plain = [alone(kit, spec, *one).output for one in asked]
    assert outputs((request(kit, spec, *one) for one in asked), 4) == plain
    assert len(set(plain)) > 1


def test_two_sequences_keep_the_targets_distribution_each_on_its_own():
    prompts = ((0, 1), (2, 1))

    def both(dice):
        method = catalog.build("draft-model(depth=2)", table_kit())
        requests = [BatchRequest(begin(prompt, 2, sampling=WARM), TARGET, method, dice) for prompt in prompts]
        return tuple(outputs(requests, 2, one_by_one))

    one, two = (true_law(prompt=prompt, tokens=2) for prompt in prompts)
    found = every_outcome(both)
    assert distance(found, {(a, b): p * q for a, p in one.items() for b, q in two.items()}) < 1e-12
    assert distance(found, {(a, b): p * q for a, p in one.items() for b, q in one.items()}) > 1e-3


def one_by_one(asked):
    return [model(tokens, draft) for model, tokens, draft in asked]


def test_places_are_taken_in_order_one_at_a_time_and_never_more_than_there_are(lm, words):
    kit, prompts, _, method = drafted(lm, words)
    pulled, sizes = [], []

    def requests():
        for i, (prompt, limit) in enumerate(zip(prompts, LIMITS, strict=True)):
            pulled.append((i, len(sizes)))
            yield request(kit, method, prompt, limit, str(i), end=frozenset())

    def counted(asked):
        sizes.append(len(asked))
        return score_together(asked)

    done = list(decode_together(requests(), 3, counted))
    assert [i for i, _ in pulled] == list(range(7))
    assert [at for _, at in pulled[:3]] == [0, 0, 0]
    assert pulled[3][1] == 1                       # the third prompt has one token to say: its place is free at once
    assert max(sizes) == 3
    assert sum(sizes) == sum(len(one.session.rounds) for one in done)
    assert {count for one in done for count in one.forwards} == set(range(len(sizes)))
    assert all(list(one.forwards) == list(range(one.forwards[0], one.forwards[-1] + 1)) for one in done)


def test_seconds_of_rounds_and_prefill_add_up_from_the_place_taken_to_the_last_token(lm, words):
    kit, prompts, _, method = drafted(lm, words)
    requests = (request(kit, method, prompt, 6, str(i), end=frozenset()) for i, prompt in enumerate(prompts))
    done = list(decode_together(requests, 2, score_together, Ticks(1.0, 3.0, 2.0)))
    for one in done:
        rounds = sum(round.seconds.whole for round in one.session.rounds)
        assert rounds + one.session.prefill == pytest.approx(one.now - one.began, abs=1e-6)
        assert all(round.seconds.target >= 1 for round in one.session.rounds)
    shared = {}
    for one in done:
        for count, round in zip(one.forwards, one.session.rounds, strict=True):
            assert shared.setdefault(count, round.seconds[:3]) == round.seconds[:3]
    assert min(one.began for one in done) == 3.0    # the second tick, after that of the start
    assert len({one.began for one in done}) == 7


@dataclass
class Ear:
    heard: list

    def finish(self, session):
        self.heard.append(session.id)


def test_a_memory_is_told_once_of_each_end_and_of_a_batch_that_is_abandoned(lm, words):
    heard: list[str] = []
    kit = Kit(lm, parts=catalog.make_part)
    requests = [replace(request(kit, "ar", words(3, i), 2 + 3 * i, str(i), end=frozenset()),
                        memory={"ear": Ear(heard)}) for i in range(3)]
    going = decode_together(requests, 2, score_together)
    assert next(going).number == 0
    assert heard == ["0"]
    going.close()
    assert sorted(heard) == ["0", "1"]             # the third never took a place


def test_a_method_with_a_schedule_and_a_batch_without_places_are_refused(lm, words):
    kit = Kit(lm, parts=catalog.make_part)
    one = request(kit, "ar", words(3), 2, "0")
    with pytest.raises(ValueError, match="schedule of its own"):
        replace(one, method=one.method._replace(schedule=lambda *values: iter(())))
    with pytest.raises(ValueError, match="at least one place"):
        next(decode_together([one], 0, score_together))
    assert list(decode_together([], 3, score_together)) == []


def test_on_the_real_model_four_prompts_at_once_have_the_ids_they_have_alone():
    target, text = models.load("smollm2-135m", dtype=torch.float32)
    kit = Kit(target, text.facts, nodes=5, parts=catalog.make_part)
    short = sorted(load_prompts(default_path()), key=lambda prompt: len(prompt.turns[0]))[:4]
    asked = [(text.encode_chat([prompt.turns[0]]), 16, str(prompt.question_id)) for prompt in short]
    plain = [alone(kit, "ar", *one, end=text.facts.end).output for one in asked]
    assert sum(map(len, plain)) > 32
    for spec in ("ar", "sam"):
        assert outputs([request(kit, spec, *one, end=text.facts.end) for one in asked], 4) == plain


@dataclass(frozen=True)
class Asking:
    """A drafter that leaves its forward to others: it asks with a word, and drafts what it is sent."""

    def __call__(self, session, budget: Budget, dice) -> Draft:
        return Draft((1,), (-1,))

    def asking(self, session, budget: Budget, dice):
        if len(session.output) > 2:
            return Draft()                         # and asks for nothing
        token = yield f"{session.id} at {len(session.output)}"
        return Draft((token,), (-1,))


def test_what_drafters_ask_for_is_answered_at_once_and_its_time_counted_once(lm, words):
    kit, asked = Kit(lm, parts=catalog.make_part), []
    prompts = [(words(3 + i, i), 6, str(i)) for i in range(3)]

    def fill(questions):
        asked.append(tuple(questions))
        return [40 + len(asked)] * len(questions)

    ticks = Ticks(1000.0)
    requests = [request(kit, Method(Fixed(1), Asking(), Match()), *one, end=frozenset()) for one in prompts]
    done = sorted(decode_together(requests, 3, score_together, ticks, fill), key=lambda one: one.number)
    assert asked[0] == ("0 at 0", "1 at 0", "2 at 0")
    assert max(map(len, asked)) == 3
    for one, plain in zip(done, [alone(kit, "ar", *one, end=frozenset()) for one in prompts], strict=True):
        assert one.session.output == plain.output
        assert one.session.rounds[0].draft.tokens == (41,)
        assert one.session.rounds[-1].draft.tokens == ()
        assert one.session.rounds[0].seconds.what == pytest.approx(1000, abs=1)      # one forward, not three
        assert one.session.rounds[-1].seconds.what < 1


def test_without_a_shared_forward_the_same_drafter_drafts_by_itself(lm, words):
    kit = Kit(lm, parts=catalog.make_part)
    one = request(kit, Method(Fixed(1), Asking(), Match()), words(3), 3, "0", end=frozenset())
    [done] = decode_together([one], 2, score_together)
    assert done.session.rounds[0].draft.tokens == (1,)


def test_newcomers_that_are_read_at_once_are_charged_their_shares(lm, words):
    kit, read = Kit(lm, parts=catalog.make_part), []
    requests = [request(kit, "ar", words(3, i), 2 + i, str(i), end=frozenset()) for i in range(5)]
    done = list(decode_together(requests, 3, score_together, Ticks(12.0),
                                read=lambda targets: read.append(len(targets))))
    assert read == [3, 1, 1]
    by_number = sorted(done, key=lambda one: one.number)
    assert [one.session.prefill for one in by_number] == pytest.approx([4, 4, 4, 12, 12])
    assert [one.began - by_number[0].began for one in by_number[:3]] == pytest.approx([0, 4, 8])
    for one in done:
        rounds = sum(round.seconds.whole for round in one.session.rounds)
        assert rounds + one.session.prefill == pytest.approx(one.now - one.began, abs=1e-6)
