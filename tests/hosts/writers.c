/* A host with a SQLite of its own, compiled with whatever options: writers.c THREADS COMMITS EXTENSION DATABASE
 *
 * Each thread commits with the default busy handler; none may fail, and all must be there in the end. */
#include "sqlite3.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static const char *database;
static int commits;

static void die(const char *what, sqlite3 *db) {
  fprintf(stderr, "writers (SQLite %s): %s: %s\n", sqlite3_libversion(), what, db ? sqlite3_errmsg(db) : "");
  exit(1);
}

static sqlite3 *open_database(const char *path) {
  sqlite3 *db;
  if (sqlite3_open(path, &db) != SQLITE_OK) die("open", db);
  sqlite3_busy_timeout(db, 10000);
  return db;
}

static void run(sqlite3 *db, const char *sql) {
  if (sqlite3_exec(db, sql, 0, 0, 0) != SQLITE_OK) die(sql, db);
}

static long number(sqlite3 *db, const char *sql) {
  sqlite3_stmt *statement;
  if (sqlite3_prepare_v2(db, sql, -1, &statement, 0) != SQLITE_OK) die(sql, db);
  if (sqlite3_step(statement) != SQLITE_ROW) die(sql, db);
  long value = sqlite3_column_int64(statement, 0);
  sqlite3_finalize(statement);
  return value;
}

static void *writer(void *unused) {
  (void)unused;
  sqlite3 *db = open_database(database);
  for (int i = 0; i < commits; i++) {
    run(db, i % 2 ? "INSERT INTO t VALUES(401)" : "BEGIN IMMEDIATE; INSERT INTO t VALUES(401); COMMIT");
  }
  sqlite3_close(db);
  return 0;
}

int main(int count, char **arguments) {
  if (count != 5) return 2;
  int threads = atoi(arguments[1]);
  commits = atoi(arguments[2]);
  database = arguments[4];
  sqlite3 *loader = open_database(":memory:");
  char *message = 0;
  sqlite3_enable_load_extension(loader, 1);
  if (sqlite3_load_extension(loader, arguments[3], 0, &message) != SQLITE_OK) {
    fprintf(stderr, "writers (SQLite %s): load_extension: %s\n", sqlite3_libversion(), message);
    return 1;
  }
  sqlite3_close(loader);
  sqlite3 *db = open_database(database);
  if (number(db, "SELECT standfast_role() = 'primary'") != 1) die("the shim does not see the database", db);
  long before = number(db, "SELECT count(*) FROM t");
  pthread_t thread[64];
  for (int i = 0; i < threads && i < 64; i++) pthread_create(&thread[i], 0, writer, 0);
  for (int i = 0; i < threads && i < 64; i++) pthread_join(thread[i], 0);
  long after = number(db, "SELECT count(*) FROM t");
  if (after - before != (long)threads * commits) die("commits are missing", 0);
  if (sqlite3_exec(db, "PRAGMA locking_mode=EXCLUSIVE", 0, 0, 0) == SQLITE_OK) die("exclusive locking was allowed", 0);
  sqlite3_close(db);
  return 0;
}
