import pytest

from specdec_lib.cards import Kit, TokenizerFacts
from specdec_lib.index.matcher import DYNAMIC, STATIC, Matcher, SuffixMatch, shared_matcher
from specdec_lib.index.static_store import StaticStore
from specdec_lib.index.store_build import build_store
from specdec_lib.types import Refusal

TEXT = tuple(range(10, 20))                        # the corpus: ten tokens in a row


@pytest.fixture
def path(tmp_path):
    build_store(tmp_path / "store", [(*TEXT, 90, 91)])
    return tmp_path / "store"


def find(path, tokens):
    return Matcher(StaticStore(path)).find(tokens)


def test_without_a_corpus_the_session_alone_is_searched():
    matcher, tokens = Matcher(), (1, 2, 3, 1, 2, 4, 1, 2)
    match = matcher.find(tokens)
    assert match == SuffixMatch(2, 2, 5, DYNAMIC, 2)
    assert matcher.following(tokens, match, 2, "first") == (3, 1)
    assert matcher.following(tokens, match, 2, "recent") == (4, 1)


def test_the_corpus_must_match_more_than_the_bias_longer(path):
    own = (17, 18, 19, 1, 17, 18, 19)              # three tokens in the session itself
    assert find(path, own).origin == DYNAMIC
    six_longer = (17, 18, 19, 1, *TEXT[1:])        # nine in the corpus against three: six longer
    assert find(path, six_longer) == SuffixMatch(9, 10, 10, STATIC, 4)
    tie = (17, 18, 19, 1, *TEXT[2:])               # eight against three: the same worth
    assert find(path, tie).origin == DYNAMIC


def test_the_corpus_is_used_where_the_session_has_no_match(path):
    matcher, tokens = Matcher(StaticStore(path)), (5, 18, 19)
    match = matcher.find(tokens)
    assert match.origin == STATIC
    assert match.worth == 2 - 5
    assert matcher.following(tokens, match, 5) == (90, 91)


def test_without_a_match_there_is_no_continuation(path):
    matcher = Matcher(StaticStore(path))
    match = matcher.find((1, 2, 3))
    assert match == SuffixMatch()
    assert matcher.following((1, 2, 3), match, 4) == ()


def test_a_copy_that_reaches_the_end_of_the_text_repeats():
    matcher, tokens = Matcher(), (1, 2, 3, 1, 2, 3, 1)
    assert matcher.following(tokens, matcher.find(tokens), 7) == (2, 3, 1, 2, 3, 1, 2)


def test_the_parts_of_one_decode_share_one_matcher(path):
    kit = Kit(None, store=str(path))
    assert shared_matcher(kit) is shared_matcher(kit)
    assert shared_matcher(kit).store is not None
    assert shared_matcher(Kit(None)).store is None


def test_a_corpus_of_another_vocabulary_is_refused(path):
    assert shared_matcher(Kit(None, TokenizerFacts(vocab=92), store=str(path))).store        # its largest id is 91
    with pytest.raises(Refusal, match="tokenizer"):
        shared_matcher(Kit(None, TokenizerFacts(vocab=50), store=str(path)))
