// What protect-on-open.c does for a shared SQLite, for the one that is compiled into better-sqlite3 (node --require): a new
// database below $FOREIGN_DIRECTORY is put into WAL mode when it is opened first and, where $FOREIGN_STANDFAST names the command
// line of an instance, protected. The shim gets in as $FOREIGN_EXTENSION, loaded by a first connection.
'use strict';

const { execFileSync } = require('child_process');
const fs = require('fs');
const Module = require('module');
const path = require('path');

const { FOREIGN_DIRECTORY, FOREIGN_STANDFAST, FOREIGN_INSTANCE, FOREIGN_LOG, FOREIGN_EXTENSION } = process.env;

function standfast(word, file) {
  if (!FOREIGN_STANDFAST) return;
  const log = fs.openSync(FOREIGN_LOG || '/dev/null', 'a');
  try {
    execFileSync(FOREIGN_STANDFAST, [word, '-D', FOREIGN_INSTANCE, file], { stdio: ['ignore', log, log] });
  } catch (error) {
    // The log says why; unprotect fails for every path that is seen for the first time.
  } finally {
    fs.closeSync(log);
  }
}

// Arguments of the native class, of which better-sqlite3's own makes one for each database.
const native = (Database, file) => new Database(file, file, file === ':memory:', false, false, 5000, null, null);

function prepare(Database, file, anonymous, readonly, mustExist) {
  const full = path.resolve(file);
  if (anonymous || readonly || mustExist || !full.startsWith(FOREIGN_DIRECTORY)) return;
  if (fs.existsSync(full) && fs.statSync(full).size > 0) return;
  // What was at this path before was removed without a word.
  standfast('unprotect', full);
  try {
    const connection = native(Database, full);
    connection.exec('PRAGMA journal_mode=WAL');
    connection.close();
  } catch (error) {
    return; // the test is to get the error itself
  }
  standfast('protect', full);
}

const load = Module._extensions['.node'];
Module._extensions['.node'] = (module, file) => {
  load(module, file);
  const addon = module.exports;
  if (!addon.Database) return;
  const Database = addon.Database;
  // Without it an error ends the process; better-sqlite3 puts its own in place later.
  addon.setErrorConstructor(Error);
  if (FOREIGN_EXTENSION) {
    const loader = native(Database, ':memory:');
    try {
      loader.loadExtension(FOREIGN_EXTENSION);
    } catch (error) {
      // One copy of SQLite in a process is served. A test that loads another one makes only temporary databases with it.
      if (!/another copy of SQLite/.test(error.message)) throw error;
    }
    loader.close();
  }
  addon.Database = new Proxy(Database, {
    construct(target, [name, given, anonymous, readonly, mustExist, ...rest]) {
      prepare(target, name, anonymous, readonly, mustExist);
      return new target(name, given, anonymous, readonly, mustExist, ...rest);
    },
  });
};
