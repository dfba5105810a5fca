"""asyncpg: binary throughout, everything prepared, types looked up in the catalog."""

from __future__ import annotations

import asyncio
import datetime as dt
import io
from contextlib import asynccontextmanager
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from tests.server.clients.conftest import ENDLESS, Gateway
from tests.server.clients.data import KINDS, SAMPLES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@asynccontextmanager
async def connected(gateway: Gateway) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(gateway.url())
    try:
        yield connection
    finally:
        await connection.close()


def test_values(gateway: Gateway) -> None:
    async def run() -> None:
        async with connected(gateway) as connection:
            row = await connection.fetchrow("SELECT * FROM kinds WHERE id = 1")
            expected = KINDS.to_pylist()[0]
            assert {**row, "pair": None} == {**expected, "pair": None}
            assert row["pair"] == '{"x":1,"y":"one"}'

    asyncio.run(run())


def test_numbers_keep_their_digits(gateway: Gateway) -> None:
    async def run() -> None:
        async with connected(gateway) as connection:
            sql = "SELECT $1::numeric, money * $1 FROM kinds WHERE id = 1"
            for given, product in (("1.5", "18.510"), ("0.10", "1.2340")):
                row = await connection.fetchrow(sql, Decimal(given))
                assert [str(value) for value in row] == [given, product]

    asyncio.run(run())


def test_parameters(gateway: Gateway) -> None:
    async def run() -> None:
        async with connected(gateway) as connection:
            found = " AND ".join(f"{name} = ${number}" for number, name in enumerate(SAMPLES, 1))
            sql = f"SELECT id FROM kinds WHERE {found}"
            assert await connection.fetchval(sql, *SAMPLES.values()) == 1
            row = await connection.fetchrow(
                "SELECT $1::interval, $2::uuid, $3::numeric, $4::timestamptz, $5::int[], "
                "$6::json, $7::text[]",
                *(dt.timedelta(days=1, seconds=2), "6f9619ff-8b86-d011-b42d-00cf4fc964ff", Decimal("1.5")),
                *(dt.datetime(2024, 1, 1, tzinfo=dt.UTC), [1, 2], '{"a":1}', ["x", None]),
            )
            assert row[0] == dt.timedelta(days=1, seconds=2) and row[2] == Decimal("1.5")
            assert row[4] == [1, 2] and row[6] == ["x", None]

    asyncio.run(run())


def test_prepared_statements_and_cursors(gateway: Gateway) -> None:
    async def run() -> None:
        async with connected(gateway) as connection:
            sql = "SELECT n_name FROM nation WHERE n_nationkey > $1 ORDER BY 1"
            statement = await connection.prepare(sql)
            assert [each.name for each in statement.get_parameters()] == ["int8"]
            assert [each.type.name for each in statement.get_attributes()] == ["text"]
            assert len(await statement.fetch(20)) == 4
            async with connection.transaction():
                sql, count = "SELECT o_orderkey FROM orders WHERE o_orderkey < $1", 0
                async for _ in connection.cursor(sql, 3000, prefetch=100):
                    count += 1
                assert count == 751
                cursor = await connection.cursor("SELECT n_name FROM nation ORDER BY 1")
                assert [row[0] for row in await cursor.fetch(2)] == ["ALGERIA", "ARGENTINA"]
                await cursor.forward(1)
                assert (await cursor.fetchrow())[0] == "CANADA"

    asyncio.run(run())


def test_copy(gateway: Gateway) -> None:
    async def run() -> None:
        async with connected(gateway) as connection:
            out = io.BytesIO()
            sql = "SELECT n_name FROM nation WHERE n_nationkey < $1 ORDER BY 1"
            await connection.copy_from_query(sql, 2, output=out, format="csv")
            await connection.copy_from_table("region", output=out, columns=["r_regionkey"])
            assert out.getvalue() == b"ALGERIA\nARGENTINA\n0\n1\n2\n3\n4\n"

    asyncio.run(run())


def test_pools_timeouts_and_errors(gateway: Gateway) -> None:
    async def run() -> None:
        async with asyncpg.create_pool(gateway.url(), min_size=2, max_size=3) as pool:
            sql = "SELECT count(*) FROM nation WHERE n_nationkey > $1"
            counts = await asyncio.gather(*(pool.fetchval(sql, number) for number in range(6)))
            assert counts == [24, 23, 22, 21, 20, 19]
            with pytest.raises(TimeoutError):
                await pool.fetch(ENDLESS, timeout=1)
            with pytest.raises(asyncpg.UndefinedColumnError) as caught:
                await pool.fetch("SELECT x FROM nation")
            assert caught.value.position == "8"
            assert await pool.fetchval("SELECT 7") == 7

    asyncio.run(run())
