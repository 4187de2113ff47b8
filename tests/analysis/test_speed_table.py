"""The short table of a run: sorted by speed, ten lines, and the time to the first token."""

import pytest

from specdec_lib.analysis import bench_report
from specdec_lib.analysis.speed_table import first_token_seconds, left_out, speed_rows
from specdec_lib.bench import summary
from specdec_lib.bench.results import Decode, Outcome
from tests.bench.made_up import decodes, report, turn


def peer(prompts=5, seconds=1.5, bought=3):
    return [Decode(q, "qa", "hf", 0, 0, True, 10, Outcome((7,) * 4, 0.25, seconds, bought, 4), "a", ("a",) * 4)
            for q in range(prompts)]


def with_peer(*groups):
    made = report(*groups)
    everything = [*made.decodes, *peer()]
    return bench_report.Report({**made.summary, "peers": summary.peer_summaries(everything)}, tuple(everything))


PLAIN = decodes("ar", *[turn(0, 0)] * 4)
FAST = decodes("fast", *[turn(3, 1, when=0.1)] * 2)
SLOW = decodes("slow", *[turn(1, 0, what=0.5)] * 4)


def test_the_fastest_stands_first_with_its_interval_and_its_counts():
    rows = speed_rows(with_peer(PLAIN, SLOW, FAST))
    assert [row["method"] for row in rows] == ["hf (peer)", "fast", "ar", "slow"]
    assert rows[1] == {"method": "fast", "times ar (95 %)": "1.82 (1.82 to 1.82)", "tokens per forward": "2.00",
                       "tokens/s": "1.8", "same ids": "5 of 5", "ms to first token": "2100"}
    assert rows[2]["times ar (95 %)"] == "1.00 (1.00 to 1.00)"
    assert rows[0]["ms to first token"] == "250"


def test_of_a_batch_the_speed_of_all_sequences_is_shown_without_an_interval():
    made = with_peer(PLAIN, FAST)
    made.entries["fast"]["batch"] = {"speedup": 0.5, "tokens_per_second": 40.0}
    made.entries["ar"]["batch"] = {"speedup": 1.0, "tokens_per_second": 80.0}
    rows = {row["method"]: row for row in speed_rows(made)}
    assert (rows["fast"]["times ar (95 %)"], rows["fast"]["tokens/s"]) == ("0.50", "40.0")
    assert list(rows).index("ar") < list(rows).index("fast")


def test_the_first_token_takes_the_prefill_and_the_first_round_in_the_median():
    some = decodes("x", turn(0, 0, target=2.0), turn(0, 0, target=9.0), slow=(1.0, 2.0, 30.0), prompts=3)
    assert first_token_seconds(some) == 1.0 + 4.0
    assert first_token_seconds(peer()) == 0.25
    assert first_token_seconds(peer(bought=4)) == 1.75, "beam search knows no token before its end"
    assert first_token_seconds([]) is None


def test_below_five_prompts_there_is_no_interval():
    made = report(decodes("ar", turn(0, 0), prompts=2), decodes("fast", turn(3, 1), prompts=2))
    assert speed_rows(made)[0]["times ar (95 %)"] == "2.00"


@pytest.mark.parametrize(("lines", "shown", "more"), [(10, ["fast", "ar", "slow"], ""),
                                                      (2, ["fast", "ar"], "1 more in summary.json"),
                                                      (1, ["ar"], "2 more in summary.json")])
def test_plain_decoding_is_always_among_the_lines(lines, shown, more):
    made = report(PLAIN, FAST, SLOW)
    assert [row["method"] for row in speed_rows(made, lines)] == shown
    assert left_out(made, lines) == more
