"""What several tests of methods share."""

import pytest

from specdec_lib.heads.draft_vocabulary import DraftVocabulary


@pytest.fixture
def trained_tokens_alone(monkeypatch):
    """Heads that draft no token of the text: the tiny target's one loop is then beyond them."""
    monkeypatch.setattr(DraftVocabulary, "read", lambda vocabulary, tokens: None)
