"""A fit of a few steps on a tiny target, what it leaves behind, and how it is killed."""

import json

import pytest

from specdec_lib.training.data.features import Features
from specdec_lib.training.fit import (
    LOG,
    Progress,
    Settings,
    fit,
)
from specdec_lib.training.losses.objective import Objective
from tests.training.killed import Killed
from tests.training.lessons import answered, drafters
from tests.training.tiny import tiny_examples, tiny_target

LEVELS, GROUPS = (1, 2, 3), [(0, 1), (2, 3), (4,)]
STEPS = Settings(steps=7, rate=0.01, save_every=0, judge_every=0)


@pytest.fixture(scope="module", name="target")
def target_fixture():
    return tiny_target()


@pytest.fixture(scope="module", name="features")
def features_fixture(target):
    return Features(target, answered(target, tiny_examples(5), 8), LEVELS, None)


def start(target, name="draft-lm"):
    return drafters(target, random=False)[name]


def run(drafter, features, folder, settings=STEPS, groups=GROUPS, **options) -> Progress:
    return fit(drafter, groups, lambda group: features(group, drafter.levels), Objective(), settings, folder, **options)


def log(folder) -> list[dict]:
    return [json.loads(line) for line in (folder / LOG).read_text().splitlines()]


def steps(folder) -> list[int]:
    return [line["step"] for line in log(folder) if "loss" in line]


def killing(at: int):
    """A progress callback that dies after this step, before it is saved."""
    def progress(now, done, line):
        if now.step == at:
            raise Killed

    return progress
