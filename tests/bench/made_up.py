"""Runs made up by hand: rounds, the decodes of a method on a few prompts, and a report of them."""

from specdec_lib.analysis import bench_report
from specdec_lib.bench import summary
from specdec_lib.bench.results import Decode, Outcome
from specdec_lib.measure import Row


def turn(drafted: int, accepted: int, when=0.0, what=0.0, target=1.0, how=0.0) -> Row:
    """One round; times in seconds."""
    return Row("x" * bool(drafted), drafted, accepted, min(drafted, accepted + 1), accepted + 1, drafted, drafted + 1,
               when, what, target, how, 0.1, (7,) * (1 + accepted), ("x",) * accepted + ("",), (2.0,) * (1 + accepted))


def decodes(method: str, *turns: Row, prompts: int = 5, slow=(1.0,) * 5) -> list[Decode]:
    """The same rounds on every prompt, `slow[i]` times as long on prompt i."""
    def one(question):
        rows = tuple(row._replace(**{part: slow[question] * getattr(row, part) for part in
                                     ("when", "what", "target", "how")}) for row in turns)
        tokens = tuple(token for row in rows for token in row.tokens)
        return Decode(question, "qa", method, 0, 0, False, 10, Outcome(
            tokens, 1.0, sum(row.seconds for row in rows), len(tokens), len(rows), rows), "a", ("a",) * len(tokens))
    return [one(question) for question in range(prompts)]


def report(*entries: list[Decode]) -> bench_report.Report:
    """A finished run of these, without a cost curve."""
    flat = tuple(one for group in entries for one in group)
    about = {"target": {"name": "tiny", "device": "cpu", "dtype": "float32"}, "prompts": {"count": 5},
             "settings": {"cost_curve": None, "temperature": 0.0},
             "methods": summary.method_summaries(flat, dict.fromkeys((d.method for d in flat), True), None),
             "peers": {}}
    return bench_report.Report(about, flat)
