"""Four producers that place orders with their payments, are killed again and again, and go on.

Each order and its payments are one transaction over two journals. A producer notes in a file of its own what
it has done, together with the acknowledgements of its last transaction; after a crash it sends these again,
which commits what it had decided on and drops what it had not.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from penstock.journals import Ack, JournalWriter, new_producer

ORDERS, PAYMENTS = "shop/orders/pivot=00", "shop/payments/pivot=00"


def produce(journals: Path, notes: Path, name: str, orders: int, pace: float) -> None:
    """Place the orders that are not placed yet."""
    noted: dict[str, Any] = {"producer": new_producer(), "done": 0, "acks": []}
    if notes.exists():
        noted = json.loads(notes.read_text())
    else:
        keep(notes, noted)
    dice = random.Random()
    with JournalWriter(journals, producer=noted["producer"]) as writer:
        writer.recover(Ack(*each) for each in noted["acks"])
        writer.roll_back(ORDERS, PAYMENTS)
        for number in range(noted["done"], orders):
            order = f"{name}-{number}"
            parts = [dice.randint(1, 5000) for _ in range(dice.randint(1, 4))]
            with writer.transaction() as transaction:
                transaction.append(
                    ORDERS, [{"order": order, "customer": f"c{dice.randrange(50)}", "total": sum(parts)}]
                )
                for amount in parts:
                    transaction.append(PAYMENTS, [{"order": order, "amount": amount}])
                acks = [[ack.journal, ack.document] for ack in transaction.prepare()]
                keep(notes, {**noted, "done": number + 1, "acks": acks})
            time.sleep(pace)


def keep(notes: Path, noted: object) -> None:
    """Write a file as a whole or not at all."""
    beside = notes.with_suffix(".new")
    with beside.open("w") as file:
        json.dump(noted, file)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(notes)


def supervise(journals: Path, producers: int, orders: int, kills: int, pace: float) -> None:
    """Start producers, kill some of them now and then, and start those again."""
    journals.mkdir(parents=True, exist_ok=True)
    dice = random.Random()

    def start(number: int) -> subprocess.Popen[bytes]:
        given = [str(journals), "--orders", str(orders), "--pace", str(pace), "--as", f"p{number}"]
        return subprocess.Popen([sys.executable, __file__, *given])

    running = {number: start(number) for number in range(producers)}
    killed = 0
    while running:
        time.sleep(dice.uniform(0.1, 0.5))
        ended = {number: process for number, process in running.items() if process.poll() is not None}
        for number, process in ended.items():
            del running[number]
            if process.returncode:
                running[number] = start(number)
        if killed < kills and running:
            running[dice.choice(list(running))].kill()
            killed += 1
    print(f"{producers * orders} orders were placed; producers were killed {killed} times")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("journals", type=Path, help="the folder of the journals")
    parser.add_argument("--orders", type=int, default=200, help="orders of each producer")
    parser.add_argument("--producers", type=int, default=4)
    parser.add_argument("--kills", type=int, default=12, help="how often a producer is killed")
    parser.add_argument("--pace", type=float, default=0.05, help="seconds between two orders")
    parser.add_argument("--as", dest="name", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.name:
        produce(given.journals, given.journals / f".{given.name}.json", given.name, given.orders, given.pace)
    else:
        supervise(given.journals, given.producers, given.orders, given.kills, given.pace)


if __name__ == "__main__":
    main()
