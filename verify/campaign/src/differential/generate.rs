//! Random programs. The same seed makes the same program in every version.
//!
//! The generator keeps a rough model of what it has created (which tables there may be, which connections may be in a
//! transaction), so that most statements are meaningful. The model need not be right: a statement that fails has to
//! fail in the same way on both sides.

use super::program::{Access, BLOBS, CONNECTIONS, CURSORS, Door, Program, Step, Value};
use standfast_testkit::Rng;

/// Protected databases, each with its page size.
pub const PROTECTED: [(&str, u32); 5] =
    [("p512.db", 512), ("p1024.db", 1024), ("p4096.db", 4096), ("p16384.db", 16384), ("p65536.db", 65536)];
/// Databases that are not protected: one in WAL mode, one with a rollback journal.
pub const UNPROTECTED: [&str; 2] = ["plain-wal.db", "plain-journal.db"];

const TABLES: [&str; 4] = ["t0", "t1", "t2", "t3"];
const WITHOUT_ROWID: &str = "t2";
const SAVEPOINTS: [&str; 3] = ["s0", "s1", "s2"];

/// The assumed state of a connection.
#[derive(Clone, Default)]
struct Model {
    open: bool,
    file: String,
    attached: Option<String>,
    transaction: bool,
    savepoints: Vec<&'static str>,
    shared: bool,
}

struct Generator {
    rng: Rng,
    protected: Vec<(String, u8)>,
    models: Vec<Model>,
    steps: Vec<Step>,
    copies: u32,
}

/// Returns the program of a seed.
pub fn program(seed: u64) -> Program {
    let mut rng = Rng::new(seed);
    let door = if rng.chance(50) { Door::Preload } else { Door::Extension };
    let mut names: Vec<&str> = PROTECTED.iter().map(|(name, _)| *name).collect();
    rng.shuffle(&mut names);
    let protected: Vec<(String, u8)> =
        names.iter().take(2).map(|name| ((*name).to_owned(), rng.below(3) as u8)).collect();
    let count = rng.between(40, 140);
    let models = vec![Model::default(); CONNECTIONS];
    let mut generator = Generator { rng, protected, models, steps: Vec::new(), copies: 0 };
    generator.begin();
    while (generator.steps.len() as u64) < count {
        generator.step();
    }
    generator.end();
    Program { seed, door, protected: generator.protected, steps: generator.steps }
}

impl Generator {
    fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.rng.below(items.len() as u64) as usize]
    }

    fn run(&mut self, connection: usize, sql: impl Into<String>) {
        self.steps.push(Step::Run { connection, sql: sql.into(), values: Vec::new() });
    }

    fn begin(&mut self) {
        let file = self.protected[0].0.clone();
        self.open_on(0, file.clone());
        let tables = self.rng.between(1, 3);
        for _ in 0..tables {
            let table = self.pick(&TABLES);
            let sql = self.create_table("main", table);
            self.run(0, sql);
            self.fill(0, "main", table);
        }
        self.open_on(1, file);
    }

    fn end(&mut self) {
        for connection in 0..CONNECTIONS {
            if self.models[connection].transaction {
                let sql = self.pick(&["COMMIT", "COMMIT", "ROLLBACK"]);
                self.run(connection, sql);
            }
        }
    }

    fn open(&mut self) {
        let connection = self.rng.below(CONNECTIONS as u64) as usize;
        let file = if self.rng.chance(80) {
            let nth = usize::from(self.rng.chance(25));
            self.protected[nth].0.clone()
        } else {
            self.pick(&UNPROTECTED).to_owned()
        };
        self.open_on(connection, file);
    }

    fn open_on(&mut self, connection: usize, file: String) {
        let access = match self.rng.below(100) {
            0..90 => Access::Write,
            90..95 => Access::Read,
            _ => Access::SharedCache,
        };
        let timeout_ms = if self.rng.chance(70) { 0 } else { self.rng.between(1, 12) as u32 };
        let shared = access == Access::SharedCache;
        self.steps.push(Step::Open { connection, file: file.clone(), access, timeout_ms });
        self.models[connection] = Model { open: true, file, shared, ..Model::default() };
        if self.rng.chance(40) {
            self.small_cache(connection);
        }
    }

    /// Sets a small cache, so that pages of a transaction spill into the WAL before it commits.
    fn small_cache(&mut self, connection: usize) {
        let (cache, spill) = (self.rng.between(1, 20), self.rng.between(1, 10));
        let schema = self.schema(connection);
        self.run(
            connection,
            format!("PRAGMA {schema}.cache_size={cache}; PRAGMA {schema}.cache_spill={spill}"),
        );
    }

    /// Draws an open connection, most often the first one.
    fn connection(&mut self) -> usize {
        let open: Vec<usize> = (0..CONNECTIONS).filter(|number| self.models[*number].open).collect();
        match open.len() {
            0 => 0,
            count => {
                let first = self.rng.chance(55);
                open[if first { 0 } else { self.rng.below(count as u64) as usize }]
            }
        }
    }

    /// Draws a schema of a connection.
    fn schema(&mut self, connection: usize) -> &'static str {
        let has_attached = self.models[connection].attached.is_some();
        match self.rng.below(100) {
            0..25 if has_attached => "aux",
            25..32 => "temp",
            _ => "main",
        }
    }

    fn is_protected(&self, file: &str) -> bool {
        self.protected.iter().any(|(name, _)| name == file)
    }

    fn file_of(&self, connection: usize, schema: &str) -> Option<String> {
        let model = &self.models[connection];
        match schema {
            "main" => Some(model.file.clone()),
            "aux" => model.attached.clone(),
            _ => None,
        }
    }

    fn step(&mut self) {
        let connection = self.connection();
        if !self.models[connection].open {
            return self.open();
        }
        match self.rng.below(1000) {
            0..40 => self.open(),
            40..55 => {
                self.steps.push(Step::Close { connection });
                self.models[connection] = Model::default();
            }
            55..70 => {
                let ms = if self.rng.chance(60) { 0 } else { self.rng.between(1, 12) as u32 };
                self.steps.push(Step::Timeout { connection, ms });
            }
            70..270 => self.transaction(connection),
            270..520 => self.change(connection),
            520..600 => self.read(connection),
            600..680 => self.schema_change(connection),
            680..770 => self.cursor(connection),
            770..835 => self.blob(connection),
            835..925 => self.pragma(connection),
            925..945 => self.vacuum(connection),
            945..965 => self.attach(connection),
            965..985 => self.checkpoint(connection),
            985..988 => self.backup(connection),
            988..996 => self.snapshot(connection),
            _ => self.refused(connection),
        }
    }

    fn transaction(&mut self, connection: usize) {
        let (inside, saved) = {
            let model = &self.models[connection];
            (model.transaction, model.savepoints.clone())
        };
        let choice = self.rng.below(100);
        if !inside && saved.is_empty() {
            if choice < 75 {
                let sql =
                    self.pick(&["BEGIN", "BEGIN", "BEGIN IMMEDIATE", "BEGIN IMMEDIATE", "BEGIN EXCLUSIVE"]);
                self.models[connection].transaction = true;
                return self.run(connection, sql);
            }
            return self.savepoint(connection);
        }
        match choice {
            0..30 => self.savepoint(connection),
            30..50 if !saved.is_empty() => {
                let nth = self.rng.below(saved.len() as u64) as usize;
                self.models[connection].savepoints.truncate(nth + 1);
                self.run(connection, format!("ROLLBACK TO {}", saved[nth]));
                // The rolled back changes are often made again, in other pages and frames.
                if self.rng.chance(60) {
                    self.change(connection);
                }
            }
            50..65 if !saved.is_empty() => {
                let nth = self.rng.below(saved.len() as u64) as usize;
                self.models[connection].savepoints.truncate(nth);
                self.run(connection, format!("RELEASE {}", saved[nth]));
            }
            65..90 => {
                self.ended(connection);
                self.run(connection, "COMMIT");
            }
            90..97 => {
                self.ended(connection);
                self.run(connection, "ROLLBACK");
            }
            _ => self.run(connection, "BEGIN"),
        }
    }

    fn ended(&mut self, connection: usize) {
        self.models[connection].transaction = false;
        self.models[connection].savepoints.clear();
    }

    fn savepoint(&mut self, connection: usize) {
        let name = self.pick(&SAVEPOINTS);
        self.models[connection].savepoints.push(name);
        self.run(connection, format!("SAVEPOINT {name}"));
    }

    fn table(&mut self, connection: usize) -> (&'static str, &'static str) {
        (self.schema(connection), self.pick(&TABLES))
    }

    fn create_table(&mut self, schema: &str, table: &str) -> String {
        let unique = self.pick(&["", "", " UNIQUE"]);
        let check = self.pick(&["", "", " CHECK(a<>13)"]);
        let extra = self.pick(&["", "", ", d DEFAULT 'd'", ", d AS (a*2)", ", d AS (length(b)) STORED"]);
        let key = match table {
            WITHOUT_ROWID => "id INT PRIMARY KEY",
            _ => self.pick(&[
                "id INTEGER PRIMARY KEY",
                "id INTEGER PRIMARY KEY",
                "id INTEGER PRIMARY KEY AUTOINCREMENT",
            ]),
        };
        let ending = if table == WITHOUT_ROWID { " WITHOUT ROWID" } else { "" };
        format!(
            "CREATE TABLE IF NOT EXISTS {schema}.{table}({key}, a INT{unique}{check}, b TEXT, c BLOB{extra}){ending}"
        )
    }

    fn bytes(&mut self) -> Value {
        let length = match self.rng.below(10) {
            0..5 => self.rng.between(0, 200),
            5..8 => self.rng.between(200, 3_000),
            _ => self.rng.between(3_000, 40_000),
        };
        Value::Bytes { seed: self.rng.next_u64(), length: length as usize }
    }

    /// Inserts up to 151 rows with one statement.
    fn fill(&mut self, connection: usize, schema: &str, table: &str) {
        let first = self.rng.below(500);
        let count = self.rng.between(1, 150);
        let length = self.pick(&[5u64, 40, 300, 900, 2500]);
        let verb = self.conflict("INSERT");
        let values = vec![self.bytes()];
        let sql = format!(
            "{verb} INTO {schema}.{table}(id,a,b,c) WITH RECURSIVE n(i) AS (SELECT {first} UNION ALL SELECT i+1 FROM n \
             WHERE i<{first}+{count}) SELECT i, i*7, printf('%.*c', {length}+i%50, 'x'), CASE i%17 WHEN 0 THEN ?1 ELSE \
             zeroblob(i%300) END FROM n"
        );
        self.steps.push(Step::Run { connection, sql, values });
    }

    fn conflict(&mut self, verb: &str) -> String {
        let how = self.pick(&["", "", "", "OR REPLACE", "OR IGNORE", "OR ABORT", "OR FAIL", "OR ROLLBACK"]);
        format!("{verb} {how}")
    }

    fn change(&mut self, connection: usize) {
        let (schema, table) = self.table(connection);
        let (low, number) = (self.rng.below(600), self.rng.below(1000) as i64);
        let high = low + self.rng.below(200);
        let values = vec![self.bytes(), Value::Number(number)];
        let sql = match self.rng.below(12) {
            0..3 => return self.fill(connection, schema, table),
            3 | 4 => {
                let verb = self.conflict("INSERT");
                format!("{verb} INTO {schema}.{table}(id,a,b,c) VALUES({low},?2,'row '||?2,?1)")
            }
            5 => {
                let verb = self.conflict("UPDATE");
                format!("{verb} {schema}.{table} SET a=a+1, b=b||'y' WHERE id BETWEEN {low} AND {high}")
            }
            6 => {
                let verb = self.conflict("UPDATE");
                format!(
                    "{verb} {schema}.{table} SET id=id+{}, c=?1 WHERE id BETWEEN {low} AND {low}+3",
                    number % 7
                )
            }
            7 => format!("DELETE FROM {schema}.{table} WHERE id BETWEEN {low} AND {high}"),
            8 => format!("DELETE FROM {schema}.{table} WHERE a%3={}", number % 3),
            9 if number % 4 == 0 => format!("DELETE FROM {schema}.{table}"),
            9 => format!(
                "INSERT INTO {schema}.{table}(id,a,b,c) VALUES({low},?2,'up',?1) ON CONFLICT(id) DO UPDATE SET \
                 a=excluded.a, c=excluded.c"
            ),
            // The last row may exist already: then the whole statement is rolled back, partly from the WAL.
            10 => format!(
                "INSERT INTO {schema}.{table}(id,a,b,c) SELECT id+1000, a+10000, b, c FROM {schema}.{table} UNION ALL SELECT \
                 {low},?2,'last',?1"
            ),
            _ => {
                let (from, other) = self.table(connection);
                let verb = self.conflict("INSERT");
                format!(
                    "{verb} INTO {schema}.{table}(id,a,b,c) SELECT id+1,a,b,c FROM {from}.{other} LIMIT {}",
                    high - low
                )
            }
        };
        self.steps.push(Step::Run { connection, sql, values });
    }

    fn query(&mut self, connection: usize) -> String {
        let (schema, table) = self.table(connection);
        let low = self.rng.below(400);
        match self.rng.below(7) {
            0 => format!(
                "SELECT count(*), sum(id), sum(a), total(length(b)), total(length(c)) FROM {schema}.{table}"
            ),
            1 => format!("SELECT id,a,b,c FROM {schema}.{table} WHERE id>={low} ORDER BY id"),
            2 => format!("SELECT a,count(*),max(c) FROM {schema}.{table} GROUP BY a%10 ORDER BY 1"),
            3 => format!("SELECT b,id FROM {schema}.{table} WHERE a>{low} ORDER BY b,id LIMIT 20"),
            4 => {
                let (from, other) = self.table(connection);
                format!(
                    "SELECT x.id,y.a FROM {schema}.{table} x JOIN {from}.{other} y ON x.id=y.id ORDER BY 1,2 LIMIT 50"
                )
            }
            5 => format!("SELECT type,name,tbl_name,rootpage,sql FROM {schema}.sqlite_schema ORDER BY rowid"),
            _ => format!("SELECT id,c FROM {schema}.{table} ORDER BY id DESC"),
        }
    }

    fn read(&mut self, connection: usize) {
        let sql = self.query(connection);
        self.run(connection, sql);
    }

    fn schema_change(&mut self, connection: usize) {
        let (schema, table) = self.table(connection);
        let number = self.rng.below(3);
        let sql = match self.rng.below(16) {
            0..5 => {
                let create = self.create_table(schema, table);
                self.run(connection, create);
                if self.rng.chance(70) {
                    self.fill(connection, schema, table);
                }
                return;
            }
            5 => format!("DROP TABLE IF EXISTS {schema}.{table}"),
            6 | 7 => {
                let unique = self.pick(&["", "", "UNIQUE"]);
                let columns = self.pick(&["a", "b,a", "length(c)", "a,b"]);
                let partial = self.pick(&["", " WHERE a>50"]);
                format!(
                    "CREATE {unique} INDEX IF NOT EXISTS {schema}.i{number} ON {table}({columns}){partial}"
                )
            }
            8 => format!("DROP INDEX IF EXISTS {schema}.i{number}"),
            9 => format!("ALTER TABLE {schema}.{table} ADD COLUMN e{number} DEFAULT {number}"),
            10 => format!("ALTER TABLE {schema}.{table} DROP COLUMN e{number}"),
            11 => format!("ALTER TABLE {schema}.{table} RENAME COLUMN e{number} TO e{}", (number + 1) % 3),
            12 => {
                format!("CREATE VIEW IF NOT EXISTS {schema}.v{number} AS SELECT id,a FROM {table} WHERE a>9")
            }
            13 => format!(
                "CREATE TRIGGER IF NOT EXISTS {schema}.r{number} AFTER DELETE ON {table} BEGIN INSERT OR IGNORE INTO \
                 {table}(id,a,b) VALUES(old.id+5000, old.a, 'was '||old.id); END"
            ),
            14 => format!("DROP TRIGGER IF EXISTS {schema}.r{number}"),
            _ => self.pick(&["ANALYZE", "REINDEX", "DROP VIEW IF EXISTS v1"]).to_owned(),
        };
        self.run(connection, sql);
    }

    fn cursor(&mut self, connection: usize) {
        let cursor = self.rng.below(CURSORS as u64) as usize;
        match self.rng.below(10) {
            0..4 => {
                let sql = self.query(connection);
                self.steps.push(Step::Prepare { connection, cursor, sql });
                let rows = self.rng.between(1, 10) as u32;
                self.steps.push(Step::Next { cursor, rows });
                // The purpose is commits while the cursor is open.
                if self.rng.chance(60) {
                    self.change(connection);
                    self.steps.push(Step::Next { cursor, rows });
                }
            }
            4..8 => {
                let rows = self.rng.between(1, 30) as u32;
                self.steps.push(Step::Next { cursor, rows });
            }
            _ => self.steps.push(Step::Finalize { cursor }),
        }
    }

    fn blob(&mut self, connection: usize) {
        let blob = self.rng.below(BLOBS as u64) as usize;
        let (schema, table) = self.table(connection);
        let (at, length) = (self.rng.below(1100) as u32, self.rng.between(1, 300) as u32);
        // Rows of `fill` that hold a large value.
        let row = 17 * self.rng.below(30) as i64;
        match self.rng.below(10) {
            0..4 => {
                let write = self.rng.chance(75);
                let (schema, table) = (schema.to_owned(), table.to_owned());
                self.steps.push(Step::BlobOpen { connection, blob, schema, table, row, write });
                let seed = self.rng.next_u64();
                self.steps.push(Step::BlobWrite { blob, at: at % 900, length, seed });
            }
            4..6 => {
                let seed = self.rng.next_u64();
                self.steps.push(Step::BlobWrite { blob, at, length, seed });
            }
            6 | 7 => self.steps.push(Step::BlobRead { blob, at, length }),
            8 => self.steps.push(Step::BlobReopen { blob, row }),
            _ => self.steps.push(Step::BlobClose { blob }),
        }
    }

    fn pragma(&mut self, connection: usize) {
        let schema = self.schema(connection);
        let number = self.rng.below(6);
        let sql = match self.rng.below(30) {
            0..4 => return self.small_cache(connection),
            4..7 => format!("PRAGMA {schema}.incremental_vacuum({})", number * 3),
            7 => format!("PRAGMA {schema}.auto_vacuum={}", number % 3),
            8 | 9 => format!("PRAGMA {schema}.page_size={}", 512 << number),
            10 => "PRAGMA journal_mode".to_owned(),
            11 => self.journal_mode(connection, schema),
            12 => format!("PRAGMA wal_autocheckpoint={}", number * 50),
            13 => format!("PRAGMA {schema}.synchronous={}", number % 4),
            14 => format!("PRAGMA mmap_size={}", number % 3 * 100_000),
            15 => format!("PRAGMA {schema}.secure_delete={}", number % 2),
            16 => format!("PRAGMA temp_store={}", number % 3),
            17 => format!("PRAGMA {schema}.user_version={number}; PRAGMA {schema}.user_version"),
            18 => "PRAGMA recursive_triggers=1".to_owned(),
            19 => format!("PRAGMA query_only={}", u64::from(number == 0)),
            20 => format!("PRAGMA read_uncommitted={}", number % 2),
            21 => format!("PRAGMA {schema}.data_version"),
            22 => format!("PRAGMA {schema}.integrity_check"),
            23 => format!("PRAGMA {schema}.freelist_count; PRAGMA {schema}.page_count"),
            24 => format!("PRAGMA {schema}.schema_version"),
            25 => format!("PRAGMA {schema}.max_page_count={}", 20 + number * 300),
            26 => format!("PRAGMA {schema}.max_page_count=1000000"),
            27 => format!("PRAGMA {schema}.journal_size_limit={}", number * 10_000),
            28 => self
                .pick(&["PRAGMA optimize", "PRAGMA shrink_memory", "PRAGMA locking_mode=NORMAL"])
                .to_owned(),
            _ => {
                self.steps.push(Step::Flush { connection });
                return;
            }
        };
        self.run(connection, sql);
    }

    /// A protected database is only set to WAL, its present mode; [`Step::Refused`] covers the other modes.
    fn journal_mode(&mut self, connection: usize, schema: &str) -> String {
        let plain = self.file_of(connection, schema).is_some_and(|file| !self.is_protected(&file));
        let mode = if plain { self.pick(&["WAL", "DELETE", "TRUNCATE", "PERSIST", "WAL"]) } else { "WAL" };
        format!("PRAGMA {schema}.journal_mode={mode}")
    }

    fn vacuum(&mut self, connection: usize) {
        let schema = self.schema(connection);
        let sql = match self.rng.below(10) {
            0..4 => "VACUUM".to_owned(),
            4..7 => format!("VACUUM {schema}"),
            7 => {
                self.copies += 1;
                format!("VACUUM {schema} INTO 'copy-{}.db'", self.copies)
            }
            _ => format!("PRAGMA {schema}.auto_vacuum={}; VACUUM {schema}", self.rng.below(3)),
        };
        self.run(connection, sql);
    }

    fn attach(&mut self, connection: usize) {
        if self.models[connection].attached.is_some() {
            if self.rng.chance(50) {
                self.models[connection].attached = None;
                self.run(connection, "DETACH aux");
            }
            return;
        }
        let file = match self.rng.below(10) {
            0..6 => {
                self.protected[usize::from(self.models[connection].file == self.protected[0].0)].0.clone()
            }
            6..8 => UNPROTECTED[0].to_owned(),
            8 => UNPROTECTED[1].to_owned(),
            _ => ":memory:".to_owned(),
        };
        self.run(connection, format!("ATTACH '{file}' AS aux"));
        self.models[connection].attached = Some(file);
        if self.rng.chance(80) {
            let table = self.pick(&TABLES);
            let sql = self.create_table("aux", table);
            self.run(connection, sql);
            self.fill(connection, "aux", table);
        }
    }

    fn checkpoint(&mut self, connection: usize) {
        let schema = self.pick(&[None, Some("main"), Some("aux")]);
        let (mode, pragma) = (self.rng.below(4) as u8, self.rng.chance(50));
        let schema = schema.map(str::to_owned);
        self.steps.push(Step::Checkpoint { connection, schema, mode, pragma });
    }

    fn backup(&mut self, from: usize) {
        let to = self.rng.between(0, CONNECTIONS as u64 + 1) as usize;
        let pages = self.pick(&[-1, 5]);
        self.steps.push(Step::Backup { from, to, pages });
    }

    fn snapshot(&mut self, taken: usize) {
        let file = self.models[taken].file.clone();
        let others: Vec<usize> = (0..CONNECTIONS)
            .filter(|number| {
                let model = &self.models[*number];
                *number != taken && model.open && model.file == file && !model.shared
            })
            .collect();
        if others.is_empty() || self.models[taken].shared {
            return;
        }
        let (writer, opened) = (self.pick(&others), self.pick(&others));
        let kept = self.rng.chance(60);
        let (table, low) = (self.pick(&TABLES), self.rng.below(400));
        self.steps.push(Step::Snapshot {
            taken,
            kept,
            writer,
            write: format!("UPDATE main.{table} SET b=b||'z' WHERE id>{low}"),
            opened,
            read: format!("SELECT count(*), total(length(b)) FROM main.{table}"),
            schema: "main".into(),
        });
    }

    fn refused(&mut self, connection: usize) {
        let file = self.models[connection].file.clone();
        if !self.is_protected(&file) {
            return;
        }
        if self.rng.chance(30) {
            return self.steps.push(Step::RefusedTogether { file });
        }
        let sql = self.pick(&[
            "PRAGMA journal_mode=DELETE",
            "PRAGMA main.journal_mode=MEMORY",
            "PRAGMA journal_mode=off",
            "PRAGMA locking_mode=EXCLUSIVE",
            "PRAGMA main.locking_mode=exclusive",
        ]);
        self.steps.push(Step::Refused { connection, sql: sql.into() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_makes_the_same_program_and_another_differs() {
        assert_eq!(program(7), program(7));
        assert_ne!(program(7).steps, program(8).steps);
    }

    #[test]
    fn programs_use_every_kind_of_step() {
        let all: Vec<Step> = (0..200).flat_map(|seed| program(seed).steps).collect();
        let name = |step: &Step| format!("{step:?}").split([' ', '{']).next().unwrap_or_default().to_owned();
        let kinds: std::collections::BTreeSet<String> = all.iter().map(name).collect();
        assert_eq!(kinds.len(), 18, "{kinds:?}");
        let has =
            |text: &str| all.iter().any(|step| matches!(step, Step::Run { sql, .. } if sql.contains(text)));
        for text in
            ["ROLLBACK TO", "VACUUM", "ATTACH", "incremental_vacuum", "page_size", "cache_spill", "temp."]
        {
            assert!(has(text), "{text}");
        }
    }
}
