"""Ctrl-C in a bench says what is kept."""

from types import SimpleNamespace

import pytest

from specdec_lib.bench import options
from specdec_lib.commands.exit_codes import Stopped
from specdec_lib.commands.measured_run import measured


@pytest.mark.parametrize(("batch", "kept"), [(1, "prompts"), (8, "methods")])
def test_ctrl_c_keeps_prompts_and_in_batches_methods(batch, kept, monkeypatch):
    here = SimpleNamespace(plan=SimpleNamespace(batch=batch))
    monkeypatch.setattr(options, "prepare", lambda asked: here)
    monkeypatch.setattr(options, "bench_prepared", lambda *given: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(Stopped, match=f"finished {kept} are kept in"):
        measured(here, {"quiet": True})
