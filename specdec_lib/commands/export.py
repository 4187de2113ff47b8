"""`specdec export`: a finished run in the format of another project."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from specdec_lib.analysis.bench_report import load_report
from specdec_lib.bench import spec_bench
from specdec_lib.bench.run_folder import refuse_own_file
from specdec_lib.files import check_file_place, file_stem, write_text
from specdec_lib.types import Refusal

FORMATS = ("spec-bench",)
HEADS = ("speculators", "eagle3")                  # of the trained head of this name: `export_head.py`
HEAD = "eagle"


def export_run(run: Path, out: Path, kind: str = FORMATS[0], method: str = "", prompts: Path | None = None,
               say: Callable[[str], None] = lambda line: None) -> list[Path]:
    """Writes the answers of one method to the file `out`, of all to a file each in the folder `out`; returns the files.

    Refusal for an unknown format, a run that cannot be read, and a method that it does not have.
    """
    if kind not in FORMATS:
        raise Refusal(f"there is no format named {kind!r}; there are: {', '.join((*FORMATS, *HEADS))}")
    if str(run) == HEAD and not run.exists():
        raise Refusal(f"{HEAD} is a trained head and no folder of a run: give --format {HEADS[0]} with it")
    report = load_report(run)
    names, peers = spec_bench.methods_of(report.decodes)
    wanted = [method] if method else names
    single = bool(method) or len(names) == 1
    if not wanted:
        raise Refusal(f"the run in {run} has no answers of a method: give another run")
    check_place(out, single, len(names))
    refuse_own_file(out, [run])
    created = spec_bench.seconds_of(report.summary.get("created"))
    categories = spec_bench.categories_of(report.summary, report.decodes, prompts)
    texts = {name: spec_bench.as_text(spec_bench.answer_lines(report.decodes, name, categories, created))
             for name in wanted}
    if peers and not method:
        say(f"left out: {', '.join(peers)} (peers, whose rounds were not seen)")
    if not any(one.text for one in report.decodes):
        say(f"{run} keeps no texts: the turns of its answers are empty, tokens and times are there; `specdec repeat`"
            " measures a run again, texts included")
    written = []
    for name, text in texts.items():
        path = out if single else out / f"{file_stem(name)}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text)
        written.append(path)
    return written


def check_place(out: Path, single: bool, methods: int) -> None:
    """Refuses a folder for one answer file, and a file for several."""
    if single:
        check_file_place(out)
    if not single and (out.is_file() or out.suffix == ".jsonl"):
        raise Refusal(f"the run has {methods} methods and an answer file of Spec-Bench holds one: give --method NAME,"
                      " or --out a folder, which gets a file for each")
