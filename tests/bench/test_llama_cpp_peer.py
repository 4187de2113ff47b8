"""llama.cpp as a peer: counts, ends, limits and refusals, on a stand-in with the calls that the package offers."""

import sys
import types

import pytest

from specdec_lib.bench import llama_cpp_peer, peers
from specdec_lib.types import Refusal


class Stand:
    """A model that says a fixed text; as in the package, what it drafts is evaluated together with the last token."""

    def __init__(self, text, taken=1, draft_model=None):
        self.text, self.taken, self.draft_model = text, taken, draft_model
        self.kept, self.evaluated = 0, 0

    def reset(self):
        self.kept = 0

    def eval(self, tokens):
        self.kept += len(tokens)
        self.evaluated += len(tokens)

    def generate(self, tokens, temp, top_k, repeat_penalty):
        assert (temp, top_k, repeat_penalty, self.kept) == (0.0, 1, 1.0, 0)      # greedy, from an empty cache
        self.eval(tokens)
        yield self.text[0]
        for at in range(1, len(self.text), self.taken):
            self.eval(self.text[at:at + self.taken])
            yield from self.text[at:at + self.taken]


def test_tokens_forwards_and_times_leave_the_prompt_out():
    peer = llama_cpp_peer.LlamaCpp("llama.cpp", Stand([7, 8, 9, 10, 11]), frozenset())
    for _ in range(2):                             # nothing is kept between decodes
        outcome = peer(range(600), 4)
        assert outcome.tokens == (7, 8, 9, 10)
        assert outcome.bought == outcome.forwards == 3
        assert outcome.prefill > 0 < outcome.seconds
    assert "eval" not in vars(peer.model) or peer.model.eval.__name__ == "eval"


def test_a_lookup_that_hits_takes_fewer_forwards():
    peer = llama_cpp_peer.LlamaCpp("llama.cpp-lookup", Stand(list(range(9)), taken=4), frozenset())
    assert peer((1, 2), 9).forwards == 2


def test_it_stops_after_the_first_end_token():
    stand = Stand([7, 8, 2, 9, 2])
    assert llama_cpp_peer.LlamaCpp("llama.cpp", stand, frozenset({2}))((1,), 5).tokens == (7, 8, 2)
    assert stand.evaluated == 3                    # the prompt and two tokens: nothing after the end
    assert llama_cpp_peer.LlamaCpp("llama.cpp", Stand([2, 9]), frozenset({2}))((1,), 5).tokens == (2,)


def test_what_does_not_fit_its_context_is_cut_or_refused():
    peer = llama_cpp_peer.LlamaCpp("llama.cpp", Stand([7] * 9), frozenset(), context=6)
    assert len(peer((1, 2, 3), 9).tokens) == 3
    with pytest.raises(Refusal, match="context of 6 tokens here, and a prompt has 6"):
        peer(range(6), 9)


def test_it_is_refused_by_name_for_other_targets_sampling_and_without_its_package(monkeypatch):
    with pytest.raises(Refusal, match="needs a GGUF file"):
        peers.check_peers(("hf-generate", "llama.cpp"), None, "gpt2")
    with pytest.raises(Refusal, match="greedy"):
        peers.check_peers(("llama.cpp-lookup",), None, temperature=0.7)
    peers.check_peers(("llama.cpp", "hf-generate"), None, "smollm2-135m")
    monkeypatch.setitem(sys.modules, "llama_cpp", None)
    with pytest.raises(Refusal, match=r"llama-cpp-python \(.*\): pip install -c constraints.txt -e '.\[llama-cpp\]'"):
        llama_cpp_peer.load_llama_cpp(("llama.cpp",), "file.gguf", 2, frozenset())


def test_both_peers_read_one_file_with_the_threads_of_the_run_and_keep_the_order_asked_for(monkeypatch):
    package, speculative = types.ModuleType("llama_cpp"), types.ModuleType("llama_cpp.llama_speculative")
    opened = []

    def opening(path, **options):
        opened.append((path, options))
        return Stand([7, 8], draft_model=options["draft_model"])

    package.Llama, package.llama_speculative = opening, speculative
    speculative.LlamaPromptLookupDecoding = lambda longest, tokens: ("lookup", longest, tokens)
    monkeypatch.setitem(sys.modules, "llama_cpp", package)
    monkeypatch.setitem(sys.modules, "llama_cpp.llama_speculative", speculative)
    monkeypatch.setattr(peers.locate, "default_gguf", lambda: "m.gguf")
    names = ("llama.cpp-lookup", "llama.cpp")
    lookup, plain = peers.load_peers(names, "folder", None, "cpu", frozenset({8}), threads=2)
    assert (lookup.model.draft_model, plain.model.draft_model) == (("lookup", 2, 10), None)
    assert (lookup.name, plain.name) == names
    assert {(path, one["n_threads"], one["n_threads_batch"]) for path, one in opened} == {("m.gguf", 2, 2)}
    assert plain((1,), 5).tokens == (7, 8)
