//! `standfast log dump`: redo records as text or JSON.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use standfast_environment::InstanceError;
use standfast_environment::config::settings::Config;
use standfast_environment::state::control::{Control, Role};
use standfast_environment::state::log_layout::log_config;
use standfast_environment::state::paths::Paths;
use standfast_format::{LogFileHeader, LogKind, PageVector, Ranges, Record, Vectors, decode_record};
use standfast_io::{DirectDisk, Disk};
use standfast_log::{RecordReader, RedoLog};
use standfast_types::Scn;
use standfast_types::utc_text;
use std::fmt;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

/// Prints the records of `file`, or of the logs in the instance directory, beginning at `from`.
pub fn dump(
    directory: &Path,
    file: Option<&Path>,
    from: Option<u64>,
    limit: u64,
    as_json: bool,
) -> Result<(), InstanceError> {
    let (log, start, end) = match file {
        Some(file) => open_file(file)?,
        None => open_instance(directory)?,
    };
    let mut reader = RecordReader::new(log, from.map_or(start, Scn), end);
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let mut printed = 0;
    while printed < limit {
        let begin = reader.position();
        let Some((bytes, scn)) = reader.next_record()? else { break };
        let (record, length) =
            decode_record(bytes).map_err(|error| InstanceError::Failed(error.to_string()))?;
        let value = describe(&record);
        let line = if as_json {
            json!({ "begin": begin, "scn": scn, "bytes": length, "record": value }).to_string()
        } else {
            format!("{begin:>12} {length:>7} B  {}", words(&value))
        };
        if writeln!(out, "{line}").is_err() {
            break;
        }
        printed += 1;
    }
    let _ = out.flush();
    Ok(())
}

fn describe(record: &Record<'_>) -> Value {
    match record {
        Record::Change { database, vectors } => json!({ "change": database, "pages": pages(*vectors) }),
        Record::Commit { database, time_us, database_pages, frame, vectors } => json!({
            "commit": database, "time": utc_text(*time_us), "database_pages": database_pages,
            "frame": frame, "pages": pages(*vectors),
        }),
        Record::WalGeneration { database, salts, captured_frames, database_pages, restart } => json!({
            "wal_generation": database, "salts": format!("{:08x}{:08x}", salts.0, salts.1),
            "captured_frames": captured_frames, "database_pages": database_pages, "restart": restart,
        }),
        Record::Attach(attach) => json!({
            "attach": attach.database, "name": attach.name, "page_size": attach.page_size,
        }),
        Record::Detach { database } => json!({ "detach": database }),
        Record::Baseline { database, complete } => json!({ "baseline": database, "complete": complete }),
        Record::Incarnation { number, id, branch, time_us } => json!({
            "incarnation": number, "id": id.to_string(), "branch": branch, "time": utc_text(*time_us),
        }),
        Record::Verification { database, run, database_pages, repair, vectors } => json!({
            "verification": database, "run": utc_text(*run), "database_pages": database_pages,
            "repair": repair, "pages": pages(*vectors),
        }),
        Record::EndOfRedo { time_us } => json!({ "end_of_redo": utc_text(*time_us) }),
    }
}

/// A page vector, as it is printed.
#[derive(Serialize, Deserialize)]
struct DumpedPage {
    page: u32,
    /// Checksum of the page after the change, hexadecimal.
    sum: String,
    /// Whether the vector begins with a page of zeros.
    from_zeros: bool,
    /// `offset+bytes` of each range.
    ranges: String,
}

impl DumpedPage {
    fn of(vector: &PageVector<'_>) -> DumpedPage {
        let ranges = Ranges::new(vector.ranges).flatten();
        let ranges: Vec<String> = ranges.map(|(start, data)| format!("{start}+{}", data.len())).collect();
        DumpedPage {
            page: vector.page_no,
            sum: format!("{:08x}", vector.sum_after),
            from_zeros: vector.from_zeros,
            ranges: ranges.join(" "),
        }
    }
}

impl fmt::Display for DumpedPage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "page {}{} [{}]", self.page, if self.from_zeros { " new" } else { "" }, self.ranges)
    }
}

fn pages(vectors: Vectors<'_>) -> Value {
    vectors
        .map(|vector| match vector {
            Ok(vector) => json!(DumpedPage::of(&vector)),
            Err(error) => json!({ "damaged": error.to_string() }),
        })
        .collect()
}

/// `key value` pairs on one line, with page lists in short form.
fn words(value: &Value) -> String {
    let Value::Object(fields) = value else { return value.to_string() };
    let mut parts = Vec::new();
    for (key, value) in fields {
        match value {
            Value::Array(pages) => {
                parts.extend(pages.iter().map(|page| match DumpedPage::deserialize(page) {
                    Ok(page) => page.to_string(),
                    Err(_) => "page damaged".into(),
                }));
            }
            Value::String(text) => parts.push(format!("{key} {text}")),
            other => parts.push(format!("{key} {other}")),
        }
    }
    parts.join("  ")
}

fn open_instance(directory: &Path) -> Result<(Arc<RedoLog>, Scn, Scn), InstanceError> {
    let config = Config::load(directory)?;
    let paths = Paths::new(directory, &config).map_err(|source| InstanceError::Io {
        doing: "find the instance directory",
        path: directory.to_owned(),
        source,
    })?;
    let control = Control::load(&DirectDisk, &paths.control)?;
    let kind = if control.role == Role::Primary { LogKind::Online } else { LogKind::Standby };
    let config = log_config(&config, &paths, &control, kind);
    // The instance may be running: nothing is repaired.
    let (log, recovered) = RedoLog::look(Arc::new(DirectDisk), config)?;
    let start = log
        .switches(Scn::ZERO, recovered.end)
        .first()
        .map_or(recovered.end, |switch| switch.first_scn + u64::from(switch.first_record));
    Ok((log, start, recovered.end))
}

/// Opens a single log file as if it were the only archived one.
fn open_file(file: &Path) -> Result<(Arc<RedoLog>, Scn, Scn), InstanceError> {
    let io = |source| InstanceError::Io { doing: "read the redo log", path: file.to_owned(), source };
    let mut block = vec![0; standfast_format::FILE_HEADER_BYTES];
    DirectDisk.open(file).and_then(|log| log.read_at(&mut block, 0)).map_err(io)?;
    let header = LogFileHeader::decode(&block).map_err(|error| {
        InstanceError::refused(
            format!("{}: {error}", file.display()),
            "name an online, standby or archived redo log",
        )
    })?;
    let log = RedoLog::of_file(Arc::new(DirectDisk), file)?;
    let end = log.end_of_current()?;
    Ok((log, header.first_scn + u64::from(header.first_record), end))
}
