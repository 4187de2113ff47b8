"""`--target g2p` on the command line: generate, bench with error rates and beam search, and what is refused."""

import json
from pathlib import Path

import pytest

from specdec_lib import cli
from specdec_lib.analysis.word_batches import keep_word_batches, read_word_batches, speed_rows
from specdec_lib.bench.prompts import Prompt
from specdec_lib.bench.results import Decode, Outcome, read_results
from specdec_lib.bench.seq2seq_environment import PhonemeStream, error_rates
from specdec_lib.seq2seq.dictionary import spoken_ids
from specdec_lib.types import Refusal

REPOSITORY = Path(__file__).parents[2]


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


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A folder of runs of the same words, one and three at a time; with one cost curve, drafts are as long in both."""
    folder, cost = tmp_path_factory.mktemp("g2p"), str(REPOSITORY / "data" / "results" / "g2p" / "cost.json")
    for batch in ("1", "3"):
        assert cli.run(["bench", "--target", "g2p", "--methods", "ar,specdec(k=5),token-recycling,specdec@top-beta",
                        "--peers", "beam", "--limit", "10", "--max-new-tokens", "80", "--threads", "1", "--batch",
                        batch, "--cost", cost, "--out", str(folder / f"b{batch}")]) == 0
    return folder


def test_a_bench_in_batches_says_what_single_runs_say_in_fewer_forwards_beam_search_included(runs):
    one, three = ({(decode.method, decode.question_id): decode.outcome for decode in read_results(runs / name)}
                  for name in ("b1", "b3"))
    assert {place: outcome.tokens for place, outcome in one.items()} == {
        place: outcome.tokens for place, outcome in three.items()}
    told = json.loads((runs / "b3" / "summary.json").read_text())
    for name, entry in {**told["methods"], **told["peers"]}.items():
        batch, alone = entry["batch"], sum(out.forwards for (method, _), out in one.items() if method == name)
        assert batch["size"] == 3
        assert alone / 3 <= batch["forwards"] < 0.8 * alone
        assert batch["speedup_end_to_end"] > 0
        assert batch["prefill"] > 0, "the reading of the sources, on both sides"
        assert 0 <= entry["phoneme_error_rate"] <= entry["word_error_rate"] <= 1
    assert told["methods"]["specdec(k=5)"]["batch"]["tokens_per_forward_and_sequence"] > 1.5


def test_a_table_of_these_runs_holds_forwards_and_errors_of_each_method_and_kind(runs, tmp_path):
    keep_word_batches(runs, tmp_path)
    table, told = read_word_batches(tmp_path), json.loads((runs / "b3" / "summary.json").read_text())
    assert table == read_word_batches(runs)
    assert (set(table.kinds), table.batches) == ({"words", "sentences"}, [1, 3])
    rows = [table.row(kind, 3, "specdec(k=5)") for kind in table.kinds]
    found = told["methods"]["specdec(k=5)"]["batch"]
    assert sum(row.tokens for row in rows) == found["tokens"]
    assert rows[0].forwards <= found["forwards"] <= sum(row.forwards for row in rows)
    assert [row.identical for row in rows] == [5, 5]
    assert table.row("words", 3, "beam").peer
    for kind in table.kinds:
        plain = speed_rows(table, kind)[0]
        assert (plain["method"], plain["batch"], plain["tokens per forward"]) == ("ar", 1, 1.0)
        assert plain["phoneme errors"] == pytest.approx(
            told["methods"]["ar"]["by_family"][kind]["phoneme_error_rate"], rel=1e-3)
    with pytest.raises(Refusal, match="holds no runs"):
        read_word_batches(tmp_path / "nothing")
    (tmp_path / "batches.json").write_text('{"rows": 3}')
    with pytest.raises(Refusal, match="no table of words in batches"):
        read_word_batches(tmp_path)


@pytest.mark.parametrize(("words", "sentence"), [
    (["bench", "--methods", "ar", "--target", "g2p", "--batch", "2", "--peers", "hf-generate"], "leave hf-generate"),
    (["bench", "--methods", "ar,specdec@tapout", "--target", "g2p", "--batch", "2"], "learns from one prompt"),
    (["bench", "--methods", "ar,respec", "--target", "g2p", "--batch", "2"], "another architecture"),
    (["bench", "--methods", "ar,pearl", "--target", "g2p", "--batch", "2"], "drafts while the target verifies"),
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
