//! Instances in this process, with real files and connections.

#![allow(dead_code, clippy::unwrap_used, reason = "a test that cannot continue fails")]

use rusqlite::Connection;
use standfast_environment::InstanceError;
use standfast_environment::config::settings::Config;
use standfast_environment::context::environment::Environment;
use standfast_environment::state::alert::AlertLog;
use standfast_environment::state::control::{Control, Role};
use standfast_environment::state::paths::Paths;
use standfast_instance::observe::observation;
use standfast_instance::role::create::{create_standby, init};
use standfast_instance::role::running::Running;
use standfast_io::DirectDisk;
use standfast_testkit::TempDir;
use standfast_types::{Hint, Scn};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub const WAIT: Duration = Duration::from_secs(30);

pub fn config(name: &str) -> Config {
    let mut config = Config::default();
    config.instance.name = name.into();
    config.instance.listen = "127.0.0.1:0".into();
    config.instance.insecure = true;
    config.redo.group_bytes = 8 << 20;
    config
}

/// An instance directory that is opened in this process.
pub struct Site {
    pub directory: PathBuf,
}

impl Site {
    pub fn init(place: &TempDir, name: &str) -> Site {
        let directory = place.join(name);
        init(&directory, &config(name)).unwrap();
        Site { directory }
    }

    pub fn standby(place: &TempDir, name: &str, primary: &Running) -> Site {
        let directory = place.join(name);
        let from = primary.listening().unwrap();
        create_standby(&directory, &mut config(name), &from, Role::Standby, None, &mut |_, _| {}).unwrap();
        Site { directory }
    }

    pub fn environment(&self) -> Arc<Environment> {
        let config = Config::load(&self.directory).unwrap();
        let paths = Paths::new(&self.directory, &config).unwrap();
        let control = Control::load(&DirectDisk, &paths.control).unwrap();
        Arc::new(Environment::new(config, paths, Arc::new(DirectDisk), AlertLog::silent(), control))
    }

    pub fn start(&self) -> Result<Arc<Running>, InstanceError> {
        let running = Running::new(self.environment(), observation::for_others)?;
        running.open()?;
        Ok(running)
    }
}

pub fn database(place: &TempDir) -> PathBuf {
    let path = place.join("app.db");
    let made = Connection::open(&path).unwrap();
    made.execute_batch("PRAGMA journal_mode=WAL; CREATE TABLE t(x)").unwrap();
    path
}

pub fn insert(path: &Path) {
    let application = Connection::open(path).unwrap();
    application.busy_timeout(WAIT).unwrap();
    application.execute_batch("INSERT INTO t VALUES(1)").unwrap();
}

pub fn rows(path: &Path) -> u32 {
    Connection::open(path).unwrap().query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap()
}

pub fn refusal<T>(result: Result<T, InstanceError>) -> String {
    let error = result.err().unwrap();
    assert!(error.for_terminal().contains("\nhint: "), "{error}");
    error.for_terminal()
}

pub fn captured(running: &Running) -> Scn {
    running.primary().unwrap().threads.shared().buffer.durable()
}
