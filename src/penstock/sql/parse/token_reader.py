"""A reader that walks over the tokens of one statement."""

from __future__ import annotations

from typing import NoReturn

from penstock.errors import SqlError
from penstock.sql.parse.lexing import IDENTIFIER, NUMBER, STRING, SYMBOL, WORD, Token, lexed


class TokenReader:
    """Where we are in a statement. Methods named ``take…`` step over what they find, and only then."""

    def __init__(self, text: str, dialect: str = "auto") -> None:
        self.text = text
        found = list(lexed(text, dialect))
        while found and found[-1].text == ";":
            found.pop()
        self.tokens = found
        self.at = 0

    @property
    def done(self) -> bool:
        return self.at >= len(self.tokens)

    @property
    def token(self) -> Token | None:
        return None if self.done else self.tokens[self.at]

    @property
    def position(self) -> int:
        return len(self.text) if self.done else self.tokens[self.at].start

    def next(self) -> Token:
        if self.done:
            self.fail()
        self.at += 1
        return self.tokens[self.at - 1]

    def sees(self, *words: str, ahead: int = 0) -> bool:
        """Whether the next tokens are these words (lower case) or symbols."""
        first = self.at + ahead
        here = self.tokens[first : first + len(words)]
        return len(here) == len(words) and all(
            token.kind in (WORD, SYMBOL) and token.value == word
            for token, word in zip(here, words, strict=True)
        )

    def take(self, *words: str) -> bool:
        """Step over these words, if they are next."""
        if not self.sees(*words):
            return False
        self.at += len(words)
        return True

    def take_one(self, *words: str) -> str | None:
        """Step over one of these words, if one is next."""
        for word in words:
            if self.take(word):
                return word
        return None

    def expect(self, *words: str) -> None:
        for word in words:
            if not self.take(word):
                self.fail()

    def end(self) -> None:
        if not self.done:
            self.fail()

    def name(self) -> str:
        """A name, folded unless quoted."""
        token = self.token
        if token is None or token.kind not in (WORD, IDENTIFIER):
            self.fail()
        return self.next().value

    def last_name(self) -> str:
        """A name with nothing behind it."""
        name = self.name()
        self.end()
        return name

    def path(self) -> tuple[str, ...]:
        parts = [self.name()]
        while self.take("."):
            parts.append(self.name())
        return tuple(parts)

    def names(self) -> tuple[str, ...]:
        """Names in parentheses."""
        self.expect("(")
        found = [self.name()]
        while self.take(","):
            found.append(self.name())
        self.expect(")")
        return tuple(found)

    def string(self) -> str:
        token = self.token
        if token is None or token.kind != STRING:
            self.fail()
        return self.next().value

    def take_integer(self) -> int | None:
        """A whole number with its sign, if one is next."""
        sign = self.token.text if self.token and self.token.text in ("+", "-") else ""
        number = self.at + len(sign)
        if number >= len(self.tokens) or self.tokens[number].kind != NUMBER:
            return None
        token = self.tokens[number]
        if not token.text.isdigit():
            self.fail()
        self.at = number + 1
        return -int(token.text) if sign == "-" else int(token.text)

    def rest(self) -> tuple[str, int]:
        """What is left of the statement as it stands, and where it begins; steps to the end."""
        if self.done:
            self.fail()
        start, end = self.position, self.tokens[-1].end
        self.at = len(self.tokens)
        return self.text[start:end], start

    def inside(self) -> tuple[str, int]:
        """What stands between the parenthesis that is next and its partner, and where; steps behind it."""
        self.expect("(")
        start, depth = self.tokens[self.at - 1].end, 1
        while depth:
            token = self.next()
            if token.kind == SYMBOL:
                depth += {"(": 1, ")": -1}.get(token.text, 0)
        return self.text[start : self.tokens[self.at - 1].start], start

    def parts(self) -> tuple[str, ...]:
        """What stands between parentheses, cut at the commas, as it is written."""
        end = self.at
        text, start = self.inside()
        depth, cut, found = 0, start, []
        for token in self.tokens[end + 1 : self.at - 1]:
            if token.kind != SYMBOL:
                continue
            depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(token.text, 0)
            if token.text == "," and not depth:
                found.append(self.text[cut : token.start].strip())
                cut = token.end
        found.append(self.text[cut : start + len(text)].strip())
        return tuple(found) if found != [""] else ()

    def fail(self) -> NoReturn:
        raise self.fault()

    def fault(self) -> SqlError:
        """That what is next was not expected."""
        if self.done:
            return SqlError("syntax error at end of input", sqlstate="42601", position=len(self.text))
        token = self.tokens[self.at]
        return SqlError(f'syntax error at or near "{token.text}"', sqlstate="42601", position=token.start)
