"""Where a condition stands, and what a NULL does there."""

from __future__ import annotations

from sqlglot import exp


def null_is_false(node: exp.Expr) -> bool:
    """Does a NULL do the same as false where this condition stands?

    There Spark joins, and need not tell the two apart; elsewhere it would give false for NULL.
    """
    around: exp.Expr | None = node.parent
    negated = False
    while isinstance(around, exp.Paren | exp.And | exp.Or | exp.Not):
        if negated and not isinstance(around, exp.Paren | exp.And):
            return False
        if isinstance(around, exp.Not):
            # Only NOT IN itself is a join that knows NULL.
            if not isinstance(_bared(around.this), exp.In | exp.EQ | exp.NEQ):
                return False
            negated = True
        node, around = around, around.parent
    if isinstance(around, exp.If):
        whole = around.parent
        return not negated and node.arg_key == "this" and isinstance(whole, exp.Case) and not whole.this
    return isinstance(around, exp.Where | exp.Having) or (isinstance(around, exp.Join) and not negated)


def _bared(node: exp.Expr) -> exp.Expr:
    while isinstance(node, exp.Paren):
        node = node.this
    return node
