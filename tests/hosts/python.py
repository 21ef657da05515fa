"""Python's sqlite3 module: python.py extension|preload LIBRARY DATABASE

`extension` loads the library; `preload` expects to run with LD_PRELOAD and uses nothing but the standard module.
Exit code 77: this Python was built without extension loading.
"""

import sqlite3
import sys

SKIP = 77


def check(what, got, wanted):
    if got != wanted:
        sys.exit(f"python: {what}: expected {wanted!r}, got {got!r}")


def main(door, library, database):
    if door == "extension":
        loader = sqlite3.connect(":memory:")
        if not hasattr(loader, "enable_load_extension"):
            sys.exit(SKIP)
        loader.enable_load_extension(True)
        loader.load_extension(library)
        # The shim outlives the connection that loaded it.
        loader.close()
    connection = sqlite3.connect(database)

    def value(sql):
        return connection.execute(sql).fetchone()[0]

    check("role", value("SELECT standfast_role()"), "primary")
    before = value("SELECT standfast_scn()")
    with connection:
        connection.executemany("INSERT INTO t VALUES(?)", [(201,), (202,)])
    check("captured when the commit returns", value("SELECT standfast_scn()") > before, True)
    # A PRAGMA that returns NULL would raise MemoryError here.
    check("pragma", value("PRAGMA standfast_commit_write = 'nowait,batch'"), "nowait,batch")
    check("pragma back", value("PRAGMA standfast_commit_write = default"), "wait,immediate")
    try:
        value("PRAGMA journal_mode = delete")
        sys.exit("python: leaving WAL mode was allowed")
    except sqlite3.OperationalError as error:
        check("refusal names the way", "standfast unprotect" in str(error), True)
    check("rows", value("SELECT count(*) FROM t WHERE x IN (201, 202)") >= 2, True)
    check("view", value("SELECT database_role FROM v$database"), "PRIMARY")
    check("statistics", value("SELECT count(*) FROM v$sysstat WHERE name IN ('redo size', 'redo writes')"), 2)
    check("unknown is NULL", value("SELECT total_timeouts FROM v$system_event LIMIT 1"), None)
    check("settings", value("SELECT value FROM v$parameter WHERE name = 'instance.name'"), "hosts")
    plain = sqlite3.connect(":memory:")
    try:
        plain.execute("SELECT * FROM v$log").fetchall()
        sys.exit("python: a view of no instance had an answer")
    except sqlite3.OperationalError as error:
        check("view without an instance", "standfast protect" in str(error), True)
    check("plain", plain.execute("SELECT standfast_role()").fetchone()[0], None)


if __name__ == "__main__":
    main(*sys.argv[1:])
