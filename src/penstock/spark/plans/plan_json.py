"""The JSON in which Spark writes plans and expressions: a list of nodes, parents first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

EXPRESSION = "org.apache.spark.sql.catalyst.expressions."
LOGICAL = "org.apache.spark.sql.catalyst.plans.logical."


class Unexpected(Exception):
    """Something in the JSON is not as Spark 4 writes it."""


@dataclass(frozen=True, slots=True)
class Tree:
    """A plan or an expression."""

    fields: Mapping[str, Any]
    children: tuple[Tree, ...]

    @property
    def kind(self) -> str:
        return str(self.fields["class"])

    @property
    def name(self) -> str:
        return self.kind.rpartition(".")[2]

    def is_expression(self, name: str) -> bool:
        return self.kind == EXPRESSION + name


def grow(flat: Sequence[Mapping[str, Any]]) -> Tree:
    """The tree of a list of nodes."""
    stack: list[Tree] = []
    for fields in reversed(flat):
        count = fields["num-children"]
        if count > len(stack):
            raise Unexpected("a node lacks children")
        stack.append(Tree(fields, tuple(stack.pop() for _ in range(count))))
    if len(stack) != 1:
        raise Unexpected("a tree has several roots")
    return stack[0]


def trees(value: object) -> list[Tree]:
    if not isinstance(value, list) or not all(isinstance(v, list) for v in value):
        raise Unexpected("expressions are missing")
    return [grow(flat) for flat in value]


def column(tree: Tree) -> int:
    return int(tree.fields["exprId"]["id"])


def attribute(tree: Tree) -> int | None:
    """The id of a column that is used as it is, whatever it is called here."""
    while tree.is_expression("Alias"):
        tree = tree.children[0]
    return column(tree) if tree.is_expression("AttributeReference") else None


def ids(value: object) -> tuple[int, ...]:
    return tuple(column(tree) for tree in trees(value))


def attributes(value: object) -> tuple[int, ...]:
    return tuple(i for tree in trees(value) if (i := attribute(tree)) is not None)
