"""A strip names in its legend what it shows, so that plain decoding promises no accepted tokens."""

import re

import pytest

from specdec_lib import show
from specdec_lib.how.match import Match
from specdec_lib.loop import decode
from specdec_lib.types import Budget, Draft
from tests.show.decode import ALWAYS_NEXT, decoded


def undrafted():
    vocab = show.Vocabulary.of("a b c")
    *_, session = decode(vocab.tokens("a"), ALWAYS_NEXT, lambda *_: Budget(), lambda *_: Draft(), Match(),
                         max_new_tokens=3)
    return session, vocab


@pytest.mark.parametrize(("session", "look", "roles"), [
    (decoded, {}, ["accepted", "extra"]), (decoded, {"by_round": True}, ["accepted", "rejected", "extra"]),
    (undrafted, {}, ["extra"]), (undrafted, {"by_round": True}, ["extra"])])
def test_the_legend_lists_the_roles_that_occur(session, look, roles):
    html = show.strip(*session(), **look).html
    assert re.findall(r">(\w+)</span>", html.rpartition('<div style="font-size:85%;margin-top')[2]) == roles


def test_a_round_without_a_draft_has_one_role():
    session, vocab = undrafted()
    assert show.round(session.rounds[0], vocab).html.count(">accepted<") == 0
