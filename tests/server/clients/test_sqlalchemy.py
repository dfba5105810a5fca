"""SQLAlchemy: reflection, expressions, the ORM, and rows that stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa
from sqlalchemy import orm

from tests.server.clients.data import KINDS, REMOTE, TPCH

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.server.clients.conftest import Gateway


class Base(orm.DeclarativeBase):
    """Of the tables here."""


class Region(Base):
    __tablename__ = "region"
    r_regionkey: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    r_name: orm.Mapped[str]


class Nation(Base):
    __tablename__ = "nation"
    n_nationkey: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    n_name: orm.Mapped[str]
    n_regionkey: orm.Mapped[int] = orm.mapped_column(sa.ForeignKey("region.r_regionkey"))
    region: orm.Mapped[Region] = orm.relationship()


@pytest.fixture
def engine(gateway: Gateway) -> Iterator[sa.Engine]:
    engine = sa.create_engine(gateway.url(scheme="postgresql+psycopg"))
    yield engine
    engine.dispose()


def test_inspection(engine: sa.Engine) -> None:
    inspector = sa.inspect(engine)
    assert {"desk", "public", "secret", "sys"} <= set(inspector.get_schema_names())
    assert set(inspector.get_table_names()) == {*TPCH, *REMOTE, "kinds"}
    assert inspector.get_view_names("desk") == ["europe"]
    assert [column["name"] for column in inspector.get_columns("kinds")] == KINDS.column_names
    assert isinstance(inspector.get_columns("kinds")[7]["type"], sa.Numeric)
    assert inspector.get_pk_constraint("nation")["constrained_columns"] == []
    for ask in (inspector.get_foreign_keys, inspector.get_indexes, inspector.get_unique_constraints):
        assert ask("nation") == []
    assert inspector.has_table("nation") and not inspector.has_table("nothing")


def test_reflection(engine: sa.Engine) -> None:
    metadata = sa.MetaData()
    metadata.reflect(engine, views=True)
    metadata.reflect(engine, schema="desk", views=True)
    nation, europe = metadata.tables["nation"], metadata.tables["desk.europe"]
    with engine.connect() as connection:
        query = sa.select(nation.c.n_name).where(nation.c.n_nationkey.in_([1, 2])).order_by(nation.c.n_name)
        assert connection.execute(query).scalars().all() == ["ARGENTINA", "BRAZIL"]
        assert connection.scalar(sa.select(sa.func.count()).select_from(europe)) == 5


def test_orm(engine: sa.Engine) -> None:
    with orm.Session(engine) as session:
        canada = session.get_one(Nation, 3)
        assert (canada.n_name, canada.region.r_name) == ("CANADA", "AMERICA")
        named = sa.select(Nation).join(Region).where(Region.r_name == "ASIA").order_by(Nation.n_name)
        assert [n.n_name for n in session.scalars(named.limit(2).offset(1))] == ["INDIA", "INDONESIA"]


def test_rows_that_stream(engine: sa.Engine) -> None:
    with engine.connect().execution_options(stream_results=True, max_row_buffer=100) as connection:
        rows = connection.execute(sa.text("SELECT o_orderkey FROM orders WHERE o_orderkey < :k"), {"k": 4000})
        assert sum(1 for _ in rows) == 999
