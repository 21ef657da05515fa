//! Files of an instance and of its applications: configuration, control file, apply journal, marker, shared memory,
//! rows of views.

use super::choice;
use crate::memory_disk::MemoryDisk;
use crate::seal;
use serde_json::Value;
use standfast_apply::Journal;
use standfast_environment::config::attribute_text;
use standfast_environment::config::settings::Config;
use standfast_environment::state::control::Control;
use standfast_instance::observe::http;
use standfast_instance::server::request::Request;
use standfast_reports::delta;
use standfast_session::{Foreign, Marker, Segment, own_user, published_path};
use standfast_types::{DatabaseId, WalPosition};
use standfast_views::{Cell, Table};
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

/// A file is held as bytes, as values and as text of an error.
const FACTOR: usize = 128;
/// First byte for rows of views, outside the counted choices, so that existing inputs keep their meaning.
const ROWS: u8 = 255;
/// Factor of the operator's configuration: the parser makes a table for every `a.` of a key.
const TABLES: usize = 1024;

/// First bytes for snapshots and for HTTP requests, outside the counted choices.
const SNAPSHOTS: u8 = 254;
const HTTP: u8 = 253;

pub fn run(data: &[u8]) -> usize {
    let Some((choice, rest)) = choice(data) else { return FACTOR };
    if choice == ROWS {
        rows(rest);
        return FACTOR;
    }
    if choice == SNAPSHOTS {
        snapshots(rest);
        return FACTOR;
    }
    if choice == HTTP {
        let _ = http::request::parse(rest);
        return FACTOR;
    }
    match choice % 9 {
        0 => {
            configuration(rest);
            return TABLES;
        }
        1 => control(rest),
        2 => control(&seal::control(rest)),
        3 => journal(rest.to_vec(), |_| {}),
        4 => journal(rest.to_vec(), seal::journal),
        5 => marker(rest),
        6 => segment(rest),
        7 => attributes(rest),
        _ => {
            let _ = serde_json::from_slice::<Request>(rest);
        }
    }
    FACTOR
}

fn configuration(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let path = Path::new("standfast.toml");
    if let Ok(config) = Config::parse(text, path) {
        let again = Config::parse(&config.to_toml(), path);
        assert!(again.is_ok_and(|again| again == config), "what is accepted can be written and read again");
    }
}

/// Rows of a view that an application reads from the control socket.
fn rows(bytes: &[u8]) {
    let Ok(table) = Table::decode(bytes.to_vec()) else { return };
    assert_eq!(table.rows().count() as u64, table.len());
    for row in table.rows() {
        (0..table.columns().count()).for_each(|column| drop(Cell::from(table.cell(row, column))));
    }
}

/// A snapshot, and the one after it.
fn snapshots(bytes: &[u8]) {
    let (first, second) = bytes.split_at(bytes.len() / 2);
    if let Ok(base) = delta::decode(first, &Value::Null)
        && let Ok(value) = delta::decode(second, &base)
    {
        let again = delta::decode(&delta::encode(&value, &base), &base);
        assert!(again.is_ok_and(|again| again == value), "what is decoded can be encoded and decoded again");
    }
}

/// A destination in the notation of LOG_ARCHIVE_DEST_n.
fn attributes(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(destination) = attribute_text::parse(text) {
        let _ = attribute_text::write(&destination).len();
    }
}

fn control(bytes: &[u8]) {
    let disk = MemoryDisk::default();
    disk.put("/control", bytes);
    let Ok(control) = Control::load(&disk, Path::new("/control")) else { return };
    let _ = (control.incarnation(), control.archives_needed_from());
    if control.store(&disk, Path::new("/control")).is_ok() {
        let again = Control::load(&disk, Path::new("/control"));
        assert!(again.is_ok_and(|again| again == control), "what is accepted can be written and read again");
    }
}

fn journal(mut bytes: Vec<u8>, seal: fn(&mut [u8])) {
    seal(&mut bytes);
    let disk = Arc::new(MemoryDisk::default());
    disk.put("/apply.journal", &bytes);
    drop(bytes);
    let Ok(journal) = Journal::open(disk, Path::new("/apply.journal"), 0) else { return };
    let history = journal.history();
    for database in [DatabaseId(0), DatabaseId(1), DatabaseId(u16::MAX)] {
        let _ = history.bound(database, WalPosition::default(), |_| None);
        let _ = (history.durable_scn(database), history.stopped(database), history.has_commits(database));
    }
    let mut history = history.clone();
    history.compact();
    let _ = history.newest().count();
}

pub(super) fn marker(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(marker) = Marker::parse(text) {
        let path = Path::new("/nowhere/app.db");
        for foreign in [Foreign::Unnamed, Foreign::Replaced, Foreign::Copy] {
            let _ = marker.explain(path, &foreign);
        }
    }
}

/// The header of shared memory that belongs to no instance. Every input must be refused: an accepted one would stay
/// mapped permanently.
pub(super) fn segment(bytes: &[u8]) {
    let path = std::env::temp_dir().join(format!("standfast-fuzz-segment-{}", std::process::id()));
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path);
    let Ok(mut file) = file else { return };
    let (length, header) = bytes.split_first().map_or((0, bytes), |(length, header)| (*length, header));
    let written = file.write_all(header);
    // Large enough for any layout, or exactly as given.
    let grown = if length & 1 == 1 { file.set_len(16 << 20) } else { Ok(()) };
    if written.is_ok() && grown.is_ok() {
        let open = || Segment::open(&path, *b"of no instance!!", &[own_user()]);
        assert!(open().is_err());
        // The same bytes as the file that an instance publishes.
        if std::fs::copy(&path, published_path(&path)).is_ok() {
            assert!(open().is_err());
        }
    }
    Segment::remove(&path);
}
