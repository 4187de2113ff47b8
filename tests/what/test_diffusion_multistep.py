"""A diffusion draft in several steps: committed tokens are deterministic, the last step's carry their distribution."""

from dataclasses import replace
from functools import cache

import pytest
import torch

from specdec_lib.dice import Dice
from specdec_lib.exact import distance, every_outcome
from specdec_lib.how.rejection import Rejection
from specdec_lib.loop import begin
from specdec_lib.scores import Categorical
from specdec_lib.types import NO_DICE, Budget, Draft, Method, Refusal
from tests.what.test_diffusion_lm import TEXT, world
from tests.worlds import PROMPT, WARM, network_kit, random_diffusion, run

SESSION = begin(TEXT, 9, sampling=WARM)
KIT = network_kit()
SHARP = random_diffusion(KIT.target.shape, (0, 2), seed=7)             # slots that depend strongly on each other
SHARP = replace(SHARP, state={**SHARP.state, "norm": SHARP.state["norm"] * 3})


@pytest.mark.parametrize("steps", [1, 2, 3, 9])
def test_greedy_it_equals_the_plain_drafter_with_as_many_steps(steps):
    part, plain = world().part("denoised", steps=steps, block=6), world().part("diffusion-lm", steps=steps, block=6)
    one, other = part(begin(TEXT, 9), Budget(5), NO_DICE), plain(begin(TEXT, 9), Budget(5), NO_DICE)
    assert one.tokens == other.tokens
    assert one.confidence == pytest.approx(other.confidence, rel=1e-6)         # one step is read from its logits
    assert all(mine == pytest.approx(its, rel=1e-6) for mine, its in zip(one.stats, other.stats, strict=True))
    assert all(one.distribution(node) is None for node in range(5))
    assert part.head.forwards == plain.head.forwards <= steps


def test_committed_tokens_are_deterministic_and_the_last_steps_carry_their_distribution():
    part = world().part("denoised", steps=2)
    rows, committed = part.head.denoise(TEXT, 5, 2)
    draft = part(SESSION, Budget(5), Dice(4))
    assert 0 < len(committed) < 5
    assert max(committed) > min(set(range(5)) - set(committed))
    for slot in range(5):
        dist = draft.distribution(slot)
        if slot in committed:
            assert dist is None
            assert draft.tokens[slot] == committed[slot]
        else:
            assert torch.equal(dist.ids, part.head.ids)
            assert torch.allclose(dist.probs, rows[slot].exp(), atol=1e-6)


def test_committed_tokens_depend_on_the_text_alone():
    part = world().part("denoised", steps=3)
    committed = part.head.denoise(TEXT, 5, 3)[1]
    drafts = [part(SESSION, Budget(5), Dice(seed)) for seed in range(8)]
    assert {tuple(draft.tokens[slot] for slot in committed) for draft in drafts} == {tuple(committed.values())}
    assert len({draft.tokens for draft in drafts}) > 1


def test_one_step_draws_every_token():
    draft = world().part("denoised", steps=1)(SESSION, Budget(4), Dice(1))
    assert all(draft.distribution(node) is not None for node in range(4))


def test_a_drawn_end_token_stays_and_ends_the_draft():
    part = world().part("denoised", steps=1)
    whole = part(SESSION, Budget(5), Dice(2)).tokens
    ended = part(replace(SESSION, end=frozenset({whole[2]})), Budget(5), Dice(2)).tokens
    assert ended == whole[:whole.index(whole[2]) + 1]


def test_a_stop_rule_leaves_the_rest_undrawn_and_drops_no_drawn_token():
    part = world().part("denoised", steps=2)
    whole = part(SESSION, Budget(5), Dice(2))
    cut = part(SESSION, Budget(5, stop=lambda trail: len(trail) == 2), Dice(2))
    assert cut.tokens == whole.tokens[:2]


def test_a_note_counts_the_text_outside_the_window():
    part = world().part("denoised", settings={"window": 10})
    assert part(begin(tuple(range(20)), 9), Budget(4), NO_DICE).notes == {"unseen": 15}


@pytest.mark.parametrize("values", [{"steps": 0}, {"block": 0}])
def test_an_impossible_parameter_is_refused(values):
    with pytest.raises(Refusal, match="at least 1"):
        network_kit().part("denoised", **values)


# --- the promise of q, by enumeration: one round of three tokens of a block of four, then plain decoding -------------
# The row of a slot is that of the token before it, so no row depends on the last slot's token: the fourth is unused.

def part_of(name: str, **values):
    return replace(network_kit(), checkpoints={"diffusion-lm": SHARP}).part(name, **values)


def output_distribution(what) -> dict:
    """The distribution of four tokens, the first round with this draft."""
    def whole(dice):
        target = KIT.target.fresh()
        method = Method(lambda session, dice: Budget(0 if session.rounds else 3), what, Rejection())
        return run(method, dice, tokens=4, target=target, prompt=PROMPT)
    return every_outcome(whole)


@cache
def plain_distribution() -> dict:
    return output_distribution(lambda session, budget, dice: Draft())


def bias(what) -> float:
    """Total variation between decoding with this draft and plain decoding."""
    return distance(output_distribution(what), plain_distribution())


def row(head, session, slot: int, known: dict[int, int]) -> Categorical:
    """The distribution of one slot given these tokens."""
    return Categorical(head.ids, head.once(session.tokens, 4, known)[slot].double().exp())


def from_the_right(with_q: tuple[int, ...]):
    """Slots filled from last to first, each drawn given those to its right; slots in `with_q` carry distributions."""
    head = part_of("diffusion-lm").head

    def what(session, budget, dice):
        known, dists = {}, {}
        for slot in (2, 1, 0)[:budget.depth]:
            dists[slot] = row(head, session, slot, known)
            known[slot] = dice.choose(dists[slot])
        return Draft(tuple(known[slot] for slot in range(3)), (-1, 0, 1),
                     tuple(dists[slot] if slot in with_q else None for slot in range(3)))
    return what


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_the_distributions_of_the_last_step_keep_decoding_lossless(steps):
    part = part_of("denoised", steps=steps, block=4)
    assert bias(part) < 1e-9


def test_the_ratio_test_for_all_slots_is_biased():
    assert bias(from_the_right(with_q=(0, 1, 2))) > 1e-3


def test_slots_left_of_a_deterministic_one_may_condition_on_it():
    assert bias(from_the_right(with_q=(0, 1))) < 1e-9


def test_testing_a_committed_token_as_drawn_is_biased():
    part = part_of("denoised", steps=2, block=4)

    def what(session, budget, dice):
        draft = part(session, budget, dice)
        rows = part.head.denoise(session.tokens, 4, 2)[0].double().exp()
        return replace(draft, q=tuple(Categorical(part.head.ids, rows[slot]) for slot in range(3)))

    assert bias(what) > 1e-3
