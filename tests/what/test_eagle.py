"""EAGLE drafts a chain from its head."""

import pytest

from specdec_lib import catalog
from specdec_lib.loop import begin, decode
from specdec_lib.models.llama.path_attention import has_vectors
from specdec_lib.types import NO_DICE, Budget
from specdec_lib.what.eagle import Eagle
from tests.heads.test_eagle_rows import head_of, target_of, words
from tests.worlds import PROMPT, network_kit, run


def test_it_drafts_the_heads_best_tokens_one_after_the_other():
    part = network_kit(None).part("eagle")
    draft = part(begin(PROMPT, 9), Budget(3), NO_DICE)
    other = network_kit(None).part("eagle").head
    best = tuple(other(PROMPT, draft.keep(tuple(range(nodes)))).best[nodes] for nodes in range(3))
    assert draft.tokens == best
    assert draft.source == ("eagle",) * 3
    assert part.head.forwards == 3


def drafted(**values) -> dict[tuple[int, int], set[int]]:
    """The tokens of the drafts after all texts of two tokens."""
    part = network_kit(None).part("eagle", **values)
    return {(a, b): set(part(begin((a, b), 9), Budget(3), NO_DICE).tokens) for a in range(3) for b in range(3)}


def test_only_tokens_of_its_vocabulary_and_of_the_text_are_drafted():
    assert all(tokens <= {0, 2} for tokens in drafted(text_tokens=False).values())
    found = drafted()
    assert all(tokens <= {0, 2, *text} for text, tokens in found.items())
    assert any(1 in tokens for tokens in found.values())


def test_after_a_prompt_of_one_token_the_draft_is_empty():
    assert len(network_kit(None).part("eagle")(begin((1,), 9), Budget(3), NO_DICE)) == 0


def test_drafting_costs_no_target_forward():
    kit = network_kit(None)
    method = catalog.build("eagle", kit)
    *_, last = decode(PROMPT, kit.target, *method, max_new_tokens=30)
    assert kit.target.forwards == 1 + len(last.rounds)                 # the prompt, then one a round
    assert last.output == run(catalog.build("ar", network_kit(None)), NO_DICE, None, 30, network_kit().target)


@pytest.mark.skipif(not has_vectors(), reason="the C code has no vectors for this processor")
def test_one_call_of_compiled_code_drafts_what_a_call_for_each_token_drafts():
    text, target = words(30), target_of("bf16")
    parts = [Eagle(head_of(target, compiled)) for compiled in (True, False)]
    whole, other = (part(begin(text, 9), Budget(5), NO_DICE) for part in parts)
    assert (whole.tokens, whole.stats, whole.confidence) == (other.tokens, other.stats, other.confidence)
    end = frozenset(whole.tokens[2:3])
    stopped = parts[0](begin(text, 9, end=end), Budget(5), NO_DICE)
    assert stopped.tokens == whole.tokens[:1 + whole.tokens.index(whole.tokens[2])]


@pytest.mark.skipif(not has_vectors(), reason="the C code has no vectors for this processor")
def test_no_token_is_computed_behind_the_one_at_which_a_policy_stops():
    part = Eagle(head_of(target_of("bf16"), True))
    draft = part(begin(words(30), 9), Budget(5, stop=lambda trail: len(trail) == 2), NO_DICE)
    assert len(draft) == 2
    assert part.head.forwards == 2
