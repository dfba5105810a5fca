"""What a query touches: its tables, functions and parameters, and who can answer it.

A text may be PostgreSQL's SQL or Spark's. Unless told, it is read as PostgreSQL's; as Spark's where it
holds what only Spark writes (backticks, LATERAL VIEW, DISTRIBUTE BY …) or where only Spark's grammar can
read it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from penstock.errors import SqlError
from penstock.sql.parse import catalog_text, trees
from penstock.sql.parse.known_names import CATALOG_RELATIONS, SET_RETURNING, SPARK_AGGREGATES, SPARK_ONLY
from penstock.sql.parse.lexing import WORD, Token, lexed
from penstock.sql.statements import safety

CATALOG_SCHEMAS = frozenset({"pg_catalog", "information_schema"})
_COSTLY = frozenset({"repeat", "lpad", "rpad", "array_fill", "format"})
"""Functions by which a short text makes a huge value: not for the shadow catalog, which everyone shares."""


@dataclass(frozen=True, slots=True)
class RelationRef:
    """A table or view that is read. ``path`` is folded as the dialect folds; ``position`` is where it
    stands.
    """

    path: tuple[str, ...]
    position: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Analysis:
    """``constant`` and ``catalog`` mean that the shadow catalog can answer: nothing is read, or only its
    tables.

    Not constant, although they read nothing, are queries that may run long or grow large there: with
    set-returning functions, WITH RECURSIVE, ``repeat`` and the like; and those with functions that only
    Spark has. ``pg_sleep`` is constant: it waits, and can be cancelled.

    ``tree`` of a catalog query that only PostgreSQL itself can read is an `exp.Command` with the text.
    """

    tree: exp.Expression = field(compare=False)
    dialect: str
    relations: tuple[RelationRef, ...] = ()
    functions: frozenset[str] = frozenset()
    table_functions: frozenset[str] = frozenset()
    parameters: int = 0
    limit: int | None = None
    aggregate: bool = False
    constant: bool = False
    catalog: bool = False


def analyse(sql: str, dialect: str = "auto", *, schema_exists: safety.SchemaExists | None = None) -> Analysis:
    """Read one query. The tree is the caller's own, to change at will.

    Raises `SqlError`: 42601 with the place where it cannot be read, 42501 or 0A000 for what is not allowed.
    ``schema_exists`` tells whether a schema may bear the name of a file format.
    """
    tokens = trees.tokens(sql, dialect)
    safety.check_words(tokens)
    try:
        tree, spoken = trees.parsed(sql, dialect, tokens)
        safety.check_tree(tree, schema_exists=schema_exists)
    except SqlError:
        # The shadow gets the text as it stands, so Spark's reading is none to go by.
        catalog = catalog_text.relations(lexed(sql, "postgres")) if dialect != "spark" else None
        if catalog is None:
            raise
        return _opaque(sql, tokens, catalog)
    for node in tree.walk():
        node.pop_comments()
    return _analysis(tree, spoken)


def relation_path(table: exp.Table) -> tuple[str, ...]:
    """The parts of a table's name, folded to lower case where they are not quoted."""
    parts = [part for part in table.parts if isinstance(part, exp.Identifier)]
    return tuple(part.name if part.args.get("quoted") else part.name.lower() for part in parts)


def _analysis(tree: exp.Expression, dialect: str) -> Analysis:
    relations: list[RelationRef] = []
    functions: set[str] = set()
    table_functions: set[str] = set()
    parameters, recursive = 0, False
    withs = _Withs(dialect)
    for node in tree.walk():
        if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):
            if not node.find_ancestor(exp.Hint) and not withs.names(node):
                relations.append(RelationRef(relation_path(node), safety.position_of(node)))
        elif isinstance(node, exp.Parameter):
            parameters = max(parameters, int(node.this.name))
        elif isinstance(node, exp.With):
            recursive |= bool(node.recursive)
        if isinstance(node, exp.Func) and not isinstance(node, exp.Connector):
            functions.add(safety.function_names(node)[0])
        table_functions.update(_table_functions(node))
    relations.sort(key=lambda relation: relation.position or 0)
    # The names of the search path are few, also one below the other.
    light = {"unnest", "current_schemas"} if "current_schemas" in functions else set()
    nothing = not relations and not recursive and all(map(_only_postgres, table_functions - light))
    heavy = {name for name in (functions & SET_RETURNING) - light if not _only_postgres(name)}
    heavy |= functions & (_COSTLY | SPARK_ONLY)
    return Analysis(
        tree=tree,
        dialect=dialect,
        relations=tuple(dict.fromkeys(relations)),
        functions=frozenset(functions),
        table_functions=frozenset(table_functions),
        parameters=parameters,
        limit=_limit(tree),
        aggregate=_aggregates(tree),
        constant=nothing and not heavy and dialect == "postgres",
        catalog=bool(relations) and all(is_catalog(relation.path) for relation in relations),
    )


def is_catalog(path: Sequence[str]) -> bool:
    """Whether a name means a table of PostgreSQL's catalog."""
    if len(path) == 1:
        return path[0] in CATALOG_RELATIONS
    return path[-2] in CATALOG_SCHEMAS


def _only_postgres(function: str) -> bool:
    """Functions about PostgreSQL itself, which nobody but the shadow can answer."""
    return function.startswith(("pg_", "_pg_", "ts_", "aclexplode"))


def _table_functions(node: exp.Expr) -> Iterator[str]:
    """Functions that stand where a table does."""
    if isinstance(node, exp.Table | exp.Lateral) and isinstance(node.this, exp.Func):
        yield safety.function_names(node.this)[0]
    elif isinstance(node, exp.Unnest):
        yield "unnest"
    elif isinstance(node, exp.TableFromRows):
        yield "table"


class _Withs:
    """The names of WITH queries, and from where they can be seen. Each clause is looked at once."""

    def __init__(self, dialect: str) -> None:
        self._dialect = dialect
        self._known: dict[int, tuple[dict[str, int], dict[int, int]]] = {}

    def names(self, table: exp.Table) -> bool:
        """Whether the name is that of a WITH query that can be seen from where the name stands."""
        if len(table.parts) != 1:
            return False
        name = _folded(table.this, self._dialect)
        child: exp.Expr = table
        parent = table.parent
        while parent is not None:
            if isinstance(parent, exp.With):
                if self._before(child, parent, name):
                    return True
            else:
                clause = parent.args.get("with_")
                if isinstance(clause, exp.With) and clause is not child and name in self._of(clause)[0]:
                    return True
            child, parent = parent, parent.parent
        return False

    def _before(self, child: exp.Expr, clause: exp.With, name: str) -> bool:
        """Whether a WITH query can name another: one before it, and itself if the clause is recursive.

        PostgreSQL lets it name later ones as well. Spark does not, and would take the name for a table,
        which nobody has looked at.
        """
        first, places = self._of(clause)
        return name in first and first[name] < places[id(child)] + bool(clause.recursive)

    def _of(self, clause: exp.With) -> tuple[dict[str, int], dict[int, int]]:
        """Where each name stands first, and where each query stands."""
        if (found := self._known.get(id(clause))) is None:
            first: dict[str, int] = {}
            for number, cte in enumerate(clause.expressions):
                first.setdefault(_folded_alias(cte, self._dialect), number)
            found = first, {id(cte): number for number, cte in enumerate(clause.expressions)}
            self._known[id(clause)] = found
        return found


def _folded(identifier: exp.Expression, dialect: str) -> str:
    if dialect == "postgres" and identifier.args.get("quoted"):
        return identifier.name
    return identifier.name.lower()


def _folded_alias(cte: exp.Expression, dialect: str) -> str:
    alias = cte.args["alias"].this
    return _folded(alias, dialect)


def _limit(tree: exp.Expression) -> int | None:
    while isinstance(tree, exp.Subquery) and not tree.args.get("limit"):
        tree = tree.this
    limit = tree.args.get("limit")
    if isinstance(limit, exp.Fetch):
        options = limit.args.get("limit_options")
        if options is not None and (options.args.get("percent") or options.args.get("with_ties")):
            return None
        count = limit.args.get("count")
        return 1 if count is None else _whole(count)
    return _whole(limit.expression) if isinstance(limit, exp.Limit) else None


def _whole(node: object) -> int | None:
    literal = isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit()
    return int(node.name) if literal and isinstance(node, exp.Literal) else None


def _aggregates(tree: exp.Expression) -> bool:
    """Whether the outermost SELECT groups, or gives one row by an aggregate."""
    while isinstance(tree, exp.Subquery):
        tree = tree.this
    if not isinstance(tree, exp.Select):
        return False
    if tree.args.get("group") or tree.args.get("having"):
        return True
    return any(_has_aggregate(column) for column in tree.expressions)


def _has_aggregate(column: exp.Expression) -> bool:
    inner = column.walk(prune=lambda node: isinstance(node, exp.Query | exp.Window))
    return any(
        isinstance(node, exp.AggFunc | exp.AnonymousAggFunc)
        or (isinstance(node, exp.Anonymous) and node.name.lower() in SPARK_AGGREGATES)
        for node in inner
    )


def _opaque(sql: str, tokens: Sequence[Token], names: Sequence[tuple[tuple[str, ...], int]]) -> Analysis:
    """A catalog query that only PostgreSQL can read: the shadow gets it as it stands."""
    calls = frozenset(
        token.value for token, after in itertools.pairwise(tokens) if token.kind == WORD and after.text == "("
    )
    return Analysis(
        tree=exp.Command(this="SELECT", expression=sql),
        dialect="postgres",
        relations=tuple(RelationRef(path, position) for path, position in names),
        functions=calls,
        parameters=max((int(token.value) for token in tokens if token.kind == "parameter"), default=0),
        catalog=True,
    )
