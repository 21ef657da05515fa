// node's better-sqlite3, which has a SQLite of its own and URI names off: better-sqlite3.js EXTENSION DATABASE
'use strict';

const assert = require('node:assert/strict');
const Database = require('better-sqlite3');

const [extension, path] = process.argv.slice(2);

// Any connection can load it; the ones opened afterwards use it.
new Database(':memory:').loadExtension(extension).close();

const database = new Database(path);
const value = (sql) => database.prepare(sql).pluck().get();
assert.equal(value('SELECT standfast_role()'), 'primary');
const before = value('SELECT standfast_scn()');
const insert = database.prepare('INSERT INTO t VALUES(?)');
database.transaction(() => [301, 302].forEach((x) => insert.run(x)))();
assert.ok(value('SELECT standfast_scn()') > before, 'the commit was captured when it returned');
assert.equal(database.pragma('standfast_commit_write', { simple: true }), 'wait,immediate');
assert.throws(() => database.pragma('journal_mode = delete'), /standfast unprotect/);
assert.equal(JSON.parse(value('SELECT standfast_status()')).running, true);
assert.ok(value('SELECT count(*) FROM t WHERE x IN (301, 302)') >= 2);
database.close();
assert.equal(new Database(':memory:').prepare('SELECT standfast_role()').pluck().get(), null);
