"""What the application says it was told, and what a database holds of it."""

import sqlite3


class AcknowledgedList:
    """The application's append-only list, read as it grows (see orders.py for the columns)."""

    def __init__(self, path):
        self.path = path
        self.orders = []
        self.offset = 0

    def read_on(self):
        """Returns the orders acknowledged since the last call: (id, lines, total, commit us, at ns)."""
        with open(self.path, "rb") as file:
            file.seek(self.offset)
            news = file.read()
        # Lines are complete even after kill -9, because each was one write. The last line may still be incomplete for a
        # reader.
        news = news[: news.rfind(b"\n") + 1]
        self.offset += len(news)
        fresh = [tuple(map(int, line.split())) for line in news.splitlines()]
        self.orders += fresh
        return fresh


class Snapshot:
    """A database as it was at one moment, read by plain SQLite."""

    def __init__(self, path):
        self.connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None)
        self.connection.execute("BEGIN")
        self.orders = self.connection.execute("SELECT count(*) FROM orders").fetchone()[0]

    def find(self, acknowledged):
        """How many of the acknowledged orders are there, each with all its lines; and the ids of those missing."""
        lines = {
            number: (count, total)
            for number, count, total in self.connection.execute(
                "SELECT order_id, count(*), sum(quantity * price_cents) FROM order_lines GROUP BY order_id"
            )
        }
        heads = {
            number: (count, total)
            for number, count, total in self.connection.execute("SELECT id, lines, total_cents FROM orders")
        }
        missing = [
            number
            for number, count, total, *_ in acknowledged
            if heads.get(number) != (count, total) or lines.get(number) != (count, total)
        ]
        return len(acknowledged) - len(missing), missing

    def integrity(self):
        """`ok`, or what PRAGMA integrity_check has found."""
        return self.connection.execute("PRAGMA integrity_check").fetchone()[0]

    def close(self):
        self.connection.close()


def percentile(values, share):
    """The smallest value that is not exceeded by `share` of all values; None when there are none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None
