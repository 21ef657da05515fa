#!/usr/bin/env python3
"""An order ledger in SQLite, as any program would write it: only the standard sqlite3 module.

It knows nothing of Standfast. `demo/run` starts it with LD_PRELOAD=libstandfast_preload.so; without, it runs on
plain SQLite:

    demo/orders.py orders.db --acknowledged orders.list --status orders.json --seconds 5

Several threads, each with its own connection, place orders of one to five lines, one transaction an order. An
order whose COMMIT has returned is acknowledged: only then is it appended to the list, one write(2) a line:

    order-id  lines  total-cents  commit-microseconds  acknowledged-at (CLOCK_MONOTONIC, ns)

The list survives the death of this process by whatever signal, because the kernel has the line once write(2) has
returned. The program prints nothing; how it fares stands in the status file, as JSON.
"""

import argparse
import itertools
import json
import os
import random
import signal
import sqlite3
import threading
import time

SCHEMA = """
PRAGMA journal_mode=WAL;
CREATE TABLE IF NOT EXISTS orders(
  id INTEGER PRIMARY KEY, customer INTEGER NOT NULL, placed_at REAL NOT NULL,
  lines INTEGER NOT NULL, total_cents INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS order_lines(
  order_id INTEGER NOT NULL REFERENCES orders(id), line_no INTEGER NOT NULL,
  product TEXT NOT NULL, quantity INTEGER NOT NULL, price_cents INTEGER NOT NULL,
  PRIMARY KEY(order_id, line_no)) WITHOUT ROWID;
"""
PRODUCTS = ["anvil", "bellows", "chisel", "drill", "easel", "funnel", "gimlet", "hammer"]
BUSY_SECONDS = 30
STATUS_EVERY = 0.25


class Ledger:
    """What the threads share: order numbers, the list of acknowledged orders, the status."""

    def __init__(self, database, acknowledged, status):
        self.database = database
        self.status = status
        self.stop = threading.Event()
        self.orders = 0
        self.failed = 0
        self.last_error = None
        # Unbuffered and O_APPEND: a line is either complete in the file or absent.
        self.list = os.open(acknowledged, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        connection = self.connect()
        connection.executescript(SCHEMA)
        first = connection.execute("SELECT coalesce(max(id), 0) + 1 FROM orders").fetchone()[0]
        connection.close()
        self.numbers = itertools.count(first)

    def connect(self):
        # isolation_level=None: the module adds no BEGIN or COMMIT to those in the code below.
        connection = sqlite3.connect(self.database, timeout=BUSY_SECONDS, isolation_level=None)
        connection.execute("PRAGMA synchronous=FULL")
        return connection

    def clerk(self, seed):
        """Places orders until told to stop."""
        chance = random.Random(seed)
        connection = None
        while not self.stop.is_set():
            try:
                connection = connection or self.connect()
                self.place(connection, chance)
            except sqlite3.Error as error:
                # The outcome of this order is unknown. It is not acknowledged and not written to the list.
                self.failed += 1
                self.last_error = str(error)
                connection = None
                self.stop.wait(0.2)

    def place(self, connection, chance):
        number = next(self.numbers)
        lines = [
            (number, line, chance.choice(PRODUCTS), chance.randint(1, 9), chance.randint(100, 99_999))
            for line in range(1, chance.randint(1, 5) + 1)
        ]
        total = sum(quantity * price for _, _, _, quantity, price in lines)
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(
            "INSERT INTO orders VALUES(?,?,?,?,?)",
            (number, chance.randint(1, 5000), time.time(), len(lines), total),
        )
        connection.executemany("INSERT INTO order_lines VALUES(?,?,?,?,?)", lines)
        began = time.monotonic_ns()
        connection.execute("COMMIT")
        now = time.monotonic_ns()
        os.write(self.list, b"%d %d %d %d %d\n" % (number, len(lines), total, (now - began) // 1000, now))
        self.orders += 1

    def write_status(self, state):
        report = {"state": state, "orders": self.orders, "failed": self.failed, "last_error": self.last_error}
        with open(self.status + ".new", "w") as file:
            json.dump(report, file)
        os.replace(self.status + ".new", self.status)


def main():
    parser = argparse.ArgumentParser(description="Writes an order ledger.")
    parser.add_argument("database")
    parser.add_argument("--acknowledged", required=True, help="file to which acknowledged orders are appended")
    parser.add_argument("--status", required=True, help="file for the program's state, as JSON")
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="0: only create the tables")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()

    ledger = Ledger(options.database, options.acknowledged, options.status)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ledger.stop.set())
    end = time.monotonic() + options.seconds
    clerks = [
        threading.Thread(target=ledger.clerk, args=(options.seed * 1000 + index,), daemon=True)
        for index in range(options.threads if options.seconds > 0 else 0)
    ]
    for clerk in clerks:
        clerk.start()
    while clerks and time.monotonic() < end and not ledger.stop.is_set():
        ledger.write_status("running")
        ledger.stop.wait(min(STATUS_EVERY, max(0.0, end - time.monotonic())))
    ledger.stop.set()
    for clerk in clerks:
        clerk.join(timeout=BUSY_SECONDS)
    ledger.write_status("ended")


if __name__ == "__main__":
    main()
