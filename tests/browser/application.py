"""Writes to a protected database until it is killed: `application.py DATABASE SESSIONS`. Prints `ready` when all are connected.

Knows nothing of Standfast; tests/browser/run starts it with LD_PRELOAD.
"""

import sqlite3
import sys
import threading
import time

WRITERS = 4
BETWEEN_S = 0.01


def write(connection):
    while True:
        connection.execute("INSERT INTO t VALUES(hex(randomblob(200)))")
        time.sleep(BETWEEN_S)


def main():
    database, sessions = sys.argv[1], int(sys.argv[2])
    connections = []
    for _ in range(sessions):
        connection = sqlite3.connect(database, timeout=30, isolation_level=None, check_same_thread=False)
        connection.execute("INSERT INTO t VALUES(1)")
        connections.append(connection)
    print("ready", flush=True)
    writers = [threading.Thread(target=write, args=(connection,)) for connection in connections[:WRITERS]]
    for writer in writers:
        writer.start()
    # The other connections stay open until the writers end.
    for writer in writers:
        writer.join()


main()
