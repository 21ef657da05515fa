//! A stand-in for the instance, for trying a host of SQLite without a daemon: creates a WAL database, protects it, and
//! reports every commit as durable. `fake_instance DIRECTORY DATABASE` prints `ready` and runs until its standard input
//! ends.

#[path = "../tests/shim/fake.rs"]
mod fake;

use fake::FakeInstance;
use std::error::Error;
use std::io::Read;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [directory, database] = arguments.as_slice() else {
        return Err("usage: fake_instance DIRECTORY DATABASE".into());
    };
    let connection = rusqlite::Connection::open(database)?;
    connection.pragma_update(None, "journal_mode", "wal")?;
    connection.execute_batch("CREATE TABLE IF NOT EXISTS t(x)")?;
    let instance = FakeInstance::start(Path::new(directory));
    instance.protect(Path::new(database), 3);
    println!("ready");
    std::io::stdin().read_to_end(&mut Vec::new())?;
    println!("released {} times", instance.releases());
    Ok(())
}
