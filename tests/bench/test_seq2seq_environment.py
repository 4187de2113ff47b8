"""`--target g2p` on the command line: generate, bench with error rates and beam search, and what is refused."""

import json

import pytest

from specdec_lib import cli
from specdec_lib.bench.prompts import Prompt
from specdec_lib.bench.results import Decode, Outcome
from specdec_lib.bench.seq2seq_environment import PhonemeStream, error_rates
from specdec_lib.seq2seq.dictionary import spoken_ids


def decoded(name: str, said: str, family: str = "words") -> Decode:
    return Decode(name, family, "ar", 0, 0, False, 4, Outcome(spoken_ids(said), 0.0, 1.0, 3, 3))


def test_error_rates_are_those_of_all_prompts_and_count_the_nearest_reference():
    prompts = [Prompt("a", "words", "words", ("cat",), ("K AE T", "K AA T")),
               Prompt("b", "words", "words", ("dog",), ("D AO G",)), Prompt("c", "words", "words", ("x",), None)]
    told = error_rates(prompts, [decoded("a", "K AA T"), decoded("b", "D AA G Z"), decoded("c", "T")])
    assert (told["phoneme_error_rate"], told["word_error_rate"]) == (2 / 6, 1 / 2)
    assert error_rates(prompts[2:], [decoded("c", "T")]) == {}


def test_a_stream_puts_one_blank_between_phonemes():
    stream = PhonemeStream()
    text = "".join(stream.push(ids) for ids in ((), spoken_ids("K AE")[:2], (), spoken_ids("T | S")))
    assert text + stream.finish() == "K AE T | S"


def test_generate_pronounces_a_word(capsys):
    assert cli.run(["generate", "--target", "g2p", "--method", "specdec", "--threads", "1", "photograph"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("F ")
    assert "specdec, g2p, cpu, float32" in said


def test_a_bench_tells_speed_beside_error_rates_for_methods_and_beam_search(tmp_path):
    assert cli.run(["bench", "--target", "g2p", "--methods", "ar,specdec(k=5),sam,token-recycling,"
                    "specdec(k=25)@top-beta(beta=5,tolerance=3.0)", "--peers", "beam", "--limit", "6",
                    "--max-new-tokens", "80", "--threads", "1", "--out", str(tmp_path / "run")]) == 0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    methods, beam = summary["methods"], summary["peers"]["beam"]
    for name in ("specdec(k=5)", "sam", "token-recycling"):
        assert methods[name]["identical_prompts"] == 6
        assert methods[name]["phoneme_error_rate"] == methods["ar"]["phoneme_error_rate"]
    assert set(methods["ar"]["by_family"]) == {"words", "sentences"}
    assert methods["specdec(k=5)"]["tokens_per_target_forward"] > 1.5
    assert 0 <= beam["phoneme_error_rate"] <= beam["word_error_rate"] <= 1
    assert methods["ar"]["by_family"]["sentences"]["error_rates_ci"]["word_error_rate"] is None     # three prompts
    assert not methods["specdec(k=25)@top-beta(beta=5,tolerance=3.0)"]["lossless"]


@pytest.mark.parametrize(("words", "sentence"), [
    (["generate", "--method", "specdec", "--target", "g2p", "caf\u00e9"], "reads the letters a to z"),
    (["generate", "--method", "eagle", "--target", "g2p", "cat"], "another architecture"),
    (["generate", "--method", "draft-model", "--draft", "ngram", "--target", "g2p", "cat"], "writes phonemes"),
    (["generate", "--method", "ar", "--target", "g2p", "a" * 96], "at most 95"),
    (["bench", "--methods", "ar", "--target", "g2p", "--peers", "hf-generate"], "there are: beam"),
    (["bench", "--methods", "ar", "--peers", "beam"], "no peer named 'beam'"),
])
def test_what_it_cannot_do_is_refused_in_one_sentence(words, sentence, capsys, tmp_path):
    out = ["--out", str(tmp_path / "run")] if words[0] == "bench" else []
    assert cli.run([*words, *out]) == 2
    [line] = [line for line in capsys.readouterr().err.splitlines() if line.startswith("specdec: ")]
    assert sentence in line
