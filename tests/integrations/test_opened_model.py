"""What a caller hands in beside a model: a draft model, a tokenizer, a published head, checkpoints."""

import pytest
import torch
import transformers
from transformers import AutoModelForCausalLM

from specdec_lib.integrations.transformers import FOLDER, Speculative, up_to
from specdec_lib.types import Refusal
from tests.bench.test_published_source import HEAD, block_drafter
from tests.heads import published
from tests.heads.published import written
from tests.small_bench import WORDS, model_folder
from tests.test_loop import finish

GIVEN = {"inputs": torch.tensor([[2, 3, 4, 5, 2, 3, 4, 5, 2, 3]]), "max_new_tokens": 12, "do_sample": False}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return model_folder(tmp_path_factory.mktemp("opened") / "tiny")


@pytest.fixture(scope="module")
def model(folder):
    return loaded(folder)


@pytest.fixture(scope="module")
def padded(tmp_path_factory):
    """A target of the same tokenizer whose vocabulary is padded further, by tokens that it never emits."""
    made = loaded(model_folder(tmp_path_factory.mktemp("padded") / "wide", vocab=len(WORDS) + 9))
    made.lm_head.weight.data[len(WORDS):] = 0
    return made


@pytest.fixture
def head(tmp_path, monkeypatch):
    monkeypatch.setattr(published, "HIDDEN", 16)
    return written(tmp_path / "public", HEAD)


def loaded(folder):
    return AutoModelForCausalLM.from_pretrained(folder).eval()


def drafted(model, **more):
    """The rounds that drafted, of an answer that is plain decoding's."""
    out = model.generate(**GIVEN, return_dict_in_generate=True, **more)
    assert torch.equal(out.sequences, model.generate(**GIVEN))
    return [round for round in out.session.rounds if round.draft.tokens]


def test_a_draft_model_that_is_padded_less_drafts_where_the_tokenizer_is_given(folder, model, padded):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert drafted(padded, custom_generate=Speculative("draft-model", draft=model, tokenizer=tokenizer))
    with pytest.raises(Refusal, match="knows 31 tokens and the target 40: give tokenizer= if only their padding"):
        drafted(padded, custom_generate=Speculative("draft-model", draft=model))
    for known in (None, tokenizer):
        with pytest.raises(Refusal, match="knows 40 tokens and the target 31: use one of the same family"):
            drafted(model, custom_generate=Speculative("draft-model", draft=padded, tokenizer=known))


def test_the_name_of_a_draft_model_is_refused_with_how_to_load_it(folder, model):
    for name in (str(folder), folder):
        with pytest.raises(Refusal, match=r"load it with AutoModelForCausalLM\.from_pretrained"):
            drafted(model, custom_generate=Speculative("draft-model", draft=name))


def test_where_no_draft_model_is_given_and_no_trained_one_fits_the_argument_is_named(model, tmp_path):
    with pytest.raises(Refusal, match="there is no draft-lm in .*: give draft= a smaller transformers model"):
        drafted(model, custom_generate=Speculative("draft-model", tmp_path))
    with pytest.raises(Refusal, match="`specdec train draft-lm --target .*` makes one that fits; or give draft= a"):
        drafted(model, custom_generate=Speculative("draft-model"))         # the shipped one, for another model


def test_the_command_that_trains_a_drafter_names_the_models_folder(folder, model):
    with pytest.raises(Refusal, match=f"`specdec train eagle --target {folder}` makes one that fits"):
        drafted(model, custom_generate=Speculative("eagle2"))


def test_a_published_head_drafts_in_both_ways_into_transformers(model, head):
    for method in ("eagle", "eagle2"):
        assert drafted(model, custom_generate=Speculative(method, eagle=head))
    assert drafted(model, custom_generate=FOLDER, trust_remote_code=True, method="eagle2", eagle=str(head))


def test_a_published_block_drafter_likewise(model, tmp_path):
    drafter = block_drafter(tmp_path / "drafter")
    for method in ("block-diffusion(depth=3)", "ddtree"):
        assert drafted(model, custom_generate=Speculative(method, dflash=drafter))
    assert drafted(model, custom_generate=FOLDER, trust_remote_code=True, method="ddtree", dflash=str(drafter))
    with pytest.raises(Refusal, match="eagle2 does not draft with a block drafter: name .* ddtree, or leave dflash="):
        drafted(model, custom_generate=Speculative("eagle2", dflash=drafter))


def test_a_head_that_no_method_reads_and_one_that_does_not_fit_are_refused(folder, model, head):
    with pytest.raises(Refusal, match="sam does not draft with an EAGLE head: .* such as eagle2, or leave eagle= out"):
        drafted(model, custom_generate=Speculative("sam", eagle=head))
    with pytest.raises(Refusal, match="tiny is no EAGLE head that is known here: .*; give eagle= another one"):
        drafted(model, custom_generate=Speculative("eagle2", eagle=folder))
    with pytest.raises(Refusal, match="no folder './nowhere': give eagle= a folder or a hub name"):
        drafted(model, custom_generate=Speculative("eagle2", eagle="./nowhere"))


def test_a_round_that_is_cut_keeps_the_statistics_of_its_own_tokens_alone():
    whole = finish(max_new_tokens=8)                   # rounds of four tokens
    cut = up_to(whole, len(whole.tokens) - 2)
    last = cut.rounds[-1]
    assert cut.output == whole.output[:-2]
    assert last.row_stats.rows == (0, 1)
    assert len(last.verdict.tokens) == len(last.verdict.path) == len(last.logprobs) == 2
    assert len(last.row_stats.lse) == len(last.row_stats.entropy) == 2
