"""The folder of a run: one part per prompt, renamed into place when complete, merged at the end.

A killed run loses only the current prompt. A folder belongs to one plan: others are refused.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from specdec_lib.bench import results
from specdec_lib.bench.plan import Plan, changed_settings
from specdec_lib.bench.results import Decode
from specdec_lib.cost import curves
from specdec_lib.files import DiskFull, alone_in, refuse_special, sync, write_folder, write_text, writing
from specdec_lib.types import Refusal

LOADED = "loaded"                                  # the setting that is known only after loading
STORE = "--store"                                  # the store's name in it
BEGUN = "begun"                                    # the first process's provenance; not compared
SETTINGS = "settings.json"                         # what a run writes first
WRITTEN = ("summary.json", "rounds.parquet", "decodes.parquet", "cost.json", "parts")       # later
OF_A_PLAN = {"methods", "sha256", "max_new_tokens"}


def left_out_of(path: str | Path) -> list[str]:
    """The default methods that were left out when the run in this folder began."""
    try:
        return list(json.loads((Path(path) / SETTINGS).read_text(encoding="utf-8"))["left_out"])
    except (OSError, ValueError, KeyError, TypeError):         # if it is damaged, `RunFolder` says so
        return []


class RunFolder:
    """The results of a run; `RunFolder(path, plan)` creates them or opens those of the same plan."""

    def __init__(self, path: str | Path, plan: Plan):
        self.path = Path(path)
        with writing_run(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        kept = self._json(SETTINGS)
        refuse_foreign(self.path, WRITTEN, kept is not None)
        if kept is not None and not kept.keys() >= OF_A_PLAN:
            raise Refusal(f"{self.path / SETTINGS} is not of a run of `specdec bench`: give another --out")
        for leftover in (self.path / "parts").glob(".*"):
            shutil.rmtree(leftover, ignore_errors=True)
        if kept is None or not self.measured:
            (self.path / "cost.json").unlink(missing_ok=True)      # nothing was measured yet: begin anew
            self.save(SETTINGS, plan.as_dict())
        elif changes := changed_settings({**kept, LOADED: None, BEGUN: None}, plan.as_dict()):
            raise Refusal(f"{self.path} holds a run with other settings ({'; '.join(changes[:3])}): give another --out")
        elif self.finished:
            shutil.rmtree(self.path / "parts", ignore_errors=True)      # a kill after the summary left them

    @classmethod
    @contextmanager
    def alone(cls, path: str | Path, plan: Plan) -> Iterator[RunFolder]:
        """The folder, which no other process changes meanwhile; Refusal naming the one that is at it."""
        with ExitStack() as stack:
            with writing_run(Path(path)):
                stack.enter_context(alone_in(Path(path)))
            yield cls(path, plan)

    @property
    def finished(self) -> bool:
        return (self.path / "summary.json").exists()

    @property
    def measured(self) -> bool:
        """Whether anything was: before that, settings are those of the latest start."""
        return self.finished or (self.path / "parts").exists()

    @property
    def loaded(self) -> dict[str, str]:
        """The SHA-256 of what the run loaded, by option or by checkpoint; {} for a run of an older version."""
        found = (self._json(SETTINGS) or {}).get(LOADED)
        return {name: str(sha256) for name, sha256 in found.items()} if isinstance(found, dict) else {}

    def keep_loaded(self, loaded: Mapping[str, str], about: Mapping | None = None) -> None:
        """Adds what this process loaded and its provenance to the settings; Refusal where a run began with others."""
        new = {name: dict(some) for name, some in ((LOADED, loaded), (BEGUN, about)) if some}
        if new and not self.measured:
            self.save(SETTINGS, {**(self._json(SETTINGS) or {}), **new})
        elif there := self.loaded:                 # older versions kept no store there
            self.refuse_other_weights(loaded, sorted(there.keys() | loaded.keys() - {STORE}))

    @property
    def begun(self) -> dict:
        """The first process's provenance; {} for a run of an older version."""
        found = (self._json(SETTINGS) or {}).get(BEGUN)
        return found if isinstance(found, dict) else {}

    def refuse_other_weights(self, here: Mapping[str, str], names: Iterable[str]) -> None:
        """Refusal where one of these names has another checksum here than in the settings, or none on one side."""
        kept = self.loaded
        for name in names:
            there, own = (some.get(name, "none")[:12] for some in (kept, here))
            if there != own:
                raise Refusal(f"{self.path} holds a run with other weights (what was loaded as {name} has the checksum"
                              f" {there} there and {own} here): give another --out")

    @property
    def curve(self) -> curves.CostCurve | None:
        """The cost curve that this run began with."""
        path = self.path / "cost.json"
        return curves.load_curve(path) if path.exists() else None

    def keep_curve(self, curve: curves.CostCurve) -> None:
        self.save("cost.json", curve.as_dict())

    def part(self, index: int) -> list[Decode] | None:
        """The decodes of prompt `index`, or None where they have not been written."""
        path = self.path / "parts" / f"{index:05d}"
        if not path.exists():
            return None
        try:
            return results.read_results(path)
        except (OSError, Refusal) as error:
            raise Refusal(f"the part {path} cannot be read ({error}): remove it and run the same command"
                          " again") from None

    def write_part(self, index: int, of_prompt: Sequence[Decode]) -> None:
        """Writes all decodes of one prompt atomically."""
        final = self.path / "parts" / f"{index:05d}"
        with writing_run(self.path):
            write_folder(final, results.tables(of_prompt).write)

    def finish(self, everything: Sequence[Decode], summary: dict) -> None:
        """Merges the parts; summary.json is written last, so it marks a complete run."""
        rough = self.path / "parts" / ".merged"
        with writing_run(self.path):
            rough.mkdir(parents=True, exist_ok=True)
            results.tables(everything).write(rough)
            for table in sorted(rough.iterdir()):
                sync(table)
                os.replace(table, self.path / table.name)
        self.save("summary.json", summary)
        shutil.rmtree(self.path / "parts", ignore_errors=True)      # else the next start removes them

    def summary(self) -> dict | None:
        """The summary of a finished run, None of another; Refusal where the run's results are damaged or gone."""
        found = self._json("summary.json")
        if found is not None:
            results.check_finished(self.path, found)
        return found

    def refuse_damaged(self) -> None:
        """Refusal where the summary, or a part, cannot be read."""
        self.summary()
        for part in sorted((self.path / "parts").glob("[0-9]" * 5)):
            self.part(int(part.name))

    def save(self, name: str, value: dict) -> None:
        """Writes a JSON file atomically."""
        text = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
        with writing_run(self.path):
            write_text(self.path / name, text)

    def _json(self, name: str) -> dict | None:
        path = self.path / name
        refuse_special(path)
        try:
            read = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
        except (OSError, ValueError, RecursionError) as error:
            raise Refusal(f"{path} cannot be read ({error}): give another --out") from None
        if read is not None and not isinstance(read, dict):
            raise Refusal(f"{path} holds no JSON object, so it is not of a run: give another --out")
        return read


def refuse_foreign(folder: Path, written: Iterable[str], begun: bool, first: str = SETTINGS) -> None:
    """Refuses a folder where no run began that holds one of the files which a run would overwrite or take for its own.

    `first` is what a run writes before them. Names are looked for as they are: a link that leads nowhere counts.
    """
    found = [] if begun else [name for name in written if os.path.lexists(folder / name)]
    if found:
        raise Refusal(f"{folder} holds {found[0]} and no {first}, so this is no run that could go on: give another"
                      " --out")


def refuse_own_file(out: Path, folders: Iterable[Path]) -> None:
    """Refuses to write over a file of one of the runs that are read."""
    for folder in folders:
        if out.name in (SETTINGS, *WRITTEN) and out.resolve().parent == folder.resolve():
            raise Refusal(f"{out} is a file of the run in {folder}: give another --out")


@contextmanager
def writing_run(folder: Path) -> Iterator[None]:
    """Turns errors of the file system into a Refusal that says what is kept."""
    try:
        with writing(folder):
            yield
    except DiskFull as error:
        raise DiskFull(f"{error}; finished prompts are kept") from None
    except FileExistsError:
        raise Refusal(f"{folder} is a file, and a run is a folder: choose another --out") from None
    except OSError as error:
        raise Refusal(f"{folder} cannot be written ({error.strerror or error}: choose another --out, and run the same"
                      " command again; finished prompts are kept)") from None
