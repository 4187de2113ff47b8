"""The method specdec: greedy decoding's output on every shipped word, the target's distribution when sampling."""

from dataclasses import replace

import pytest
import torch

from specdec_lib import catalog
from specdec_lib.cards import Kit, TokenizerFacts
from specdec_lib.checkpoints.checkpoint_files import SHIPPED, CheckpointFolder
from specdec_lib.dice import Dice
from specdec_lib.exact import distance, every_outcome
from specdec_lib.loop import decode
from specdec_lib.sampling import Sampling
from specdec_lib.seq2seq.alphabet import END, VOCAB
from specdec_lib.seq2seq.dictionary import dictionary_file, read_dictionary, read_held_out, split, words_of
from specdec_lib.seq2seq.search import greedy
from specdec_lib.seq2seq.stored import load_verifier
from specdec_lib.seq2seq.verifier import Verifier
from specdec_lib.types import NO_DICE, Refusal
from tests.seq2seq.worlds import SOURCE, kit
from tests.worlds import network_kit

SPELT = read_held_out()
FACTS = TokenizerFacts(end=frozenset({END}), vocab=VOCAB)


@pytest.fixture(scope="module")
def shipped():
    """The shipped verifier with its drafter, and its greedy outputs of the shipped words, computed in batches."""
    torch.set_num_threads(1)
    net, _ = load_verifier()
    world = Kit(Verifier(net), FACTS, nodes=8, checkpoints=CheckpointFolder(SHIPPED, Verifier(net), None, "g2p"),
                parts=catalog.make_part)
    return world, list(greedy(net, [one.source for one in SPELT], 90))


def output(world: Kit, spec: str, source, dice=NO_DICE, tokens: int = 90):
    """The session after the last round of one decode."""
    target = world.target.bound(source)
    fresh = replace(world, target=target, indexes={}, memory={})
    *_, last = decode(target.start, target, *catalog.build(spec, fresh), max_new_tokens=tokens, end=world.facts.end,
                      sampling=world.sampling, source=source, dice=dice)
    return last


@pytest.mark.parametrize(("spec", "every"), [("specdec(k=10)@top-beta(beta=1, tolerance=3.0)", 1),
                                             ("specdec(k=10)", 4), ("specdec(k=25)", 8)])
def test_on_every_shipped_word_and_sentence_it_emits_greedy_decodings_tokens(shipped, spec, every):
    world, plain = shipped
    rounds = tokens = 0
    for one, wanted in list(zip(SPELT, plain, strict=True))[::every]:
        last = output(world, spec, one.source)
        assert last.output == wanted, one.text
        rounds, tokens = rounds + len(last.rounds), tokens + len(last.output)
    assert tokens / rounds > 2, "blocks are accepted"


@pytest.mark.long
def test_on_every_held_out_word_of_the_dictionary_it_emits_greedy_decodings_tokens(shipped):
    world, _ = shipped
    words = words_of(split(read_dictionary(dictionary_file()))[1])
    plain = greedy(world.target.net, [word.source for word in words], 90)
    wrong = [word.text for word, wanted in zip(words, plain, strict=True)
             if output(world, "specdec(k=10)@top-beta(beta=1, tolerance=3.0)", word.source).output != wanted]
    assert len(words) > 6000
    assert wrong == []


@pytest.mark.parametrize("spec", ["sam", "token-recycling", "specdec(k=5)", "specdec(k=1)"])
def test_methods_of_text_run_on_it_unchanged(shipped, spec):
    world, plain = shipped
    for one, wanted in list(zip(SPELT, plain, strict=True))[::40]:
        assert output(world, spec, one.source).output == wanted


def test_a_relaxed_rule_accepts_more_and_writes_other_sounds(shipped):
    world, _ = shipped
    some = [one for one in SPELT if one.kind == "sentences"][:12]
    strict, relaxed = ([output(world, spec, one.source) for one in some]
                       for spec in ("specdec(k=25)", "specdec(k=25)@top-beta(beta=5, tolerance=3.0)"))
    assert sum(len(one.rounds) for one in relaxed) < sum(len(one.rounds) for one in strict)
    assert [one.output for one in relaxed] != [one.output for one in strict]
    assert catalog.card_of("specdec").lossless
    assert not catalog.card_of("specdec@top-beta").lossless


@pytest.mark.parametrize("how", ["", "@rejection"])
def test_when_sampling_it_keeps_the_targets_distribution(how):
    warm = Sampling(1.3, top_k=3)

    def law(spec):
        def once(dice):
            world = kit(warm)
            world.target.net.float()               # a stored drafter is float32
            return output(replace(world, facts=TokenizerFacts(vocab=VOCAB)), spec, SOURCE, dice, tokens=3).output
        return every_outcome(once)

    plain = law("ar")
    assert len(plain) == 27
    assert distance(law(f"specdec(k=2){how}"), plain) < 1e-6


def test_sampled_tokens_equal_plain_decodings_with_the_same_random_numbers(shipped):
    world = replace(shipped[0], sampling=Sampling(1.0))
    for seed, one in enumerate(SPELT[::60]):
        assert (output(world, "specdec", one.source, Dice(seed)).output
                == output(world, "ar", one.source, Dice(seed)).output)


def test_a_text_target_is_refused_in_one_sentence_and_a_missing_drafter_names_its_command():
    text = network_kit()
    shelf = CheckpointFolder(SHIPPED, text.target, None, "a text model")
    with pytest.raises(Refusal, match="trained for g2p, and a text model has another architecture: none can be") as why:
        catalog.build("specdec", replace(text, checkpoints=shelf))
    assert "target g2p alone" in str(why.value)
    with pytest.raises(Refusal, match="specdec train g2p-drafter"):
        catalog.build("specdec", replace(kit(), checkpoints={}))
    with pytest.raises(Refusal, match="encoder-decoder"):
        catalog.build("eagle", replace(text, target=kit().target, checkpoints=CheckpointFolder(SHIPPED, kit().target)))


def test_a_block_longer_than_the_drafters_is_refused_with_the_number(shipped):
    with pytest.raises(Refusal, match="at most 25 slots at once, got k=40: ask for 25 or less"):
        output(shipped[0], "specdec(k=40)", SPELT[0].source)
    assert output(shipped[0], "specdec(k=25)", SPELT[0].source).rounds
