"""Words that need quotes to be names, and places in texts that got them."""

from __future__ import annotations

import pytest

from penstock.dialect.quoting import as_columns


def test_words_get_quotes_where_there_is_such_a_column() -> None:
    sql = "SELECT USER, q.user, 'user', \"user\", users FROM q -- user"
    quoted = as_columns(sql, {"user", "id"})
    assert quoted.text == 'SELECT "user", q."user", \'user\', "user", users FROM q -- user'
    assert as_columns(sql, {"id"}).text == sql
    assert as_columns("SELECT 1", {"user"}).text == "SELECT 1"


@pytest.mark.parametrize("word", ["SELECT", "user", "q.user", "x", "FROM"])
def test_places_are_found_again(word: str) -> None:
    sql = "SELECT user, q.user, x FROM q"
    quoted = as_columns(sql, {"user"})
    place = quoted.text.index(word.replace("user", '"user"'))
    assert quoted.before(place) == sql.index(word)
