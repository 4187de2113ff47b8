"""The tiny target and examples that tests of drafters share; a file that wants others defines its own."""

import pytest

from tests.training.tiny import tiny_examples, tiny_target


@pytest.fixture(scope="module")
def target():
    return tiny_target()


@pytest.fixture(scope="module")
def data():
    return tiny_examples(3)
