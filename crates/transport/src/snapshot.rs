//! Requests: copies of all databases for a new standby, the state of an instance, and to take over. Each request has its
//! own connection.
//!
//! ```text
//!  Request {"request":"snapshot"}   with "only": a number, of that database alone
//!      <── Data a=1            JSON Manifest
//!          per database:
//!      <── Data a=2 b=id       JSON DatabaseInfo
//!      <── Data a=3 b=id c=n   whole pages, the first is page n; as many frames as needed
//!      <── Data a=4 b=id       JSON SnapshotInfo
//!      <── Done                JSON SnapshotStart
//! ```
//!
//! With "sums": true only the pages that differ from those of the other end are sent, see [`crate::page_sums`].

use crate::arbitration;
use crate::certificate::CertificateRight;
use crate::error::{Refusal, RefuseCode, SourceError, StageError, TransportError};
use crate::event::ReceiverEvent;
use crate::foreign::one_line;
use crate::framing::{FrameReader, FrameWriter};
use crate::hello::{self, NewStandby, Request, TakeOver, TakeOverAnswer};
use crate::identity::PeerIdentity;
use crate::link::{LinkEnd, Security};
use crate::page_sums::{self, SUMS, TheirSums};
use crate::receiver::claims::Again;
use crate::redo::LogSwitch;
use crate::request::{ask, connect, request};
use crate::source::{DatabaseInfo, RedoSource, SnapshotInfo};
use crate::standby::ReceiverService;
use serde::{Deserialize, Serialize};
use standfast_format::{FrameHeader, FrameKind};
use standfast_types::{DatabaseId, PageNo, PageSize, Scn};
use std::time::Duration;

const MANIFEST: u64 = 1;
const BEGIN: u64 = 2;
const PAGES: u64 = 3;
const END: u64 = 4;
/// Largest frame of pages, whatever size the source passes at a time; a multiple of any page size.
const PAGE_BYTES_PER_FRAME: usize = 1024 * 1024;
/// Silence after which a copy is abandoned.
pub const COPY_SILENCE: Duration = Duration::from_secs(60);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    pub source: PeerIdentity,
    pub databases: Vec<DatabaseInfo>,
}

/// Last part of a copy: the start position of the new standby's redo.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotStart {
    /// Smallest SCN of the copies. The standby skips redo of a database up to the SCN of that database's copy.
    pub start: Scn,
    /// Running checksum of the stream at `start`.
    pub crc: u32,
    /// The primary's log that contains `start`.
    pub log: LogSwitch,
}

/// Receives a copy. Calls come in the order of the methods; `begin` to `end` once per database.
pub trait SnapshotSink {
    /// Whether it accepts databases, or needs only the start position of the redo.
    fn wants_databases(&self) -> bool {
        true
    }
    /// Whether it has pages already, and gets only those that differ.
    fn has_pages(&self) -> bool {
        false
    }
    /// Receives the list of the databases that follow.
    ///
    /// # Errors
    /// Any error ends the copy.
    fn manifest(&mut self, manifest: &Manifest) -> Result<(), StageError>;
    /// Begins a database.
    ///
    /// # Errors
    /// Any error ends the copy.
    fn begin(&mut self, database: &DatabaseInfo) -> Result<(), StageError>;
    /// Fills `page` with a page of the database that has begun, as it was before; false when it ends before that page.
    ///
    /// # Errors
    /// Any error ends the copy.
    fn page(&mut self, _page_no: PageNo, _page: &mut [u8]) -> Result<bool, StageError> {
        Ok(false)
    }
    /// Receives whole pages, ascending, without gaps unless [`SnapshotSink::has_pages`]; `first` is the number of the
    /// first one.
    ///
    /// # Errors
    /// Any error ends the copy.
    fn pages(&mut self, database: DatabaseId, first: PageNo, bytes: &[u8]) -> Result<(), StageError>;
    /// Completes a database.
    ///
    /// # Errors
    /// Any error ends the copy.
    fn end(&mut self, info: &SnapshotInfo) -> Result<(), StageError>;
}

/// Takes a copy and keeps nothing of it but the list of databases.
#[derive(Debug)]
pub struct Discarded {
    wants_databases: bool,
    has_pages: bool,
    /// `None` until the list has come.
    pub manifest: Option<Manifest>,
}

impl Discarded {
    /// `with_databases`: it asks for them, and not only where the redo begins.
    pub fn new(with_databases: bool) -> Discarded {
        Discarded { wants_databases: with_databases, has_pages: false, manifest: None }
    }
}

impl SnapshotSink for Discarded {
    fn wants_databases(&self) -> bool {
        self.wants_databases
    }
    fn has_pages(&self) -> bool {
        self.has_pages
    }
    fn manifest(&mut self, manifest: &Manifest) -> Result<(), StageError> {
        self.manifest = Some(manifest.clone());
        Ok(())
    }
    fn begin(&mut self, _: &DatabaseInfo) -> Result<(), StageError> {
        Ok(())
    }
    fn pages(&mut self, _: DatabaseId, _: PageNo, _: &[u8]) -> Result<(), StageError> {
        Ok(())
    }
    fn end(&mut self, _: &SnapshotInfo) -> Result<(), StageError> {
        Ok(())
    }
}

pub(crate) fn answer(
    service: &dyn ReceiverService,
    request: &Request,
    right: Option<&CertificateRight>,
    stream: &LinkEnd,
    again: &Again<'_>,
) -> Result<(), TransportError> {
    let mut writer = FrameWriter::new(stream.clone());
    match request {
        Request::Status { history } => {
            let header = FrameHeader::new(FrameKind::Done, 0, 0, 0, 0);
            writer.write(header, service.status(*history).as_bytes()).map_err(TransportError::io("answering"))
        }
        Request::Certificate(wish) => {
            let right =
                right.ok_or_else(|| TransportError::Protocol("a certificate without a right".into()))?;
            let grant = service.certify(wish, right)?;
            writer.write_json(FrameKind::Done, 0, &grant).map_err(TransportError::io("answering"))
        }
        Request::TakeOver(wish) => {
            let answer = service.take_over(wish, stream.peer_addr())?;
            writer.write_json(FrameKind::Done, 0, &answer).map_err(TransportError::io("answering"))
        }
        Request::Follow(standby) => {
            service.follow(standby, stream.peer_addr())?;
            writer.write_json(FrameKind::Done, 0, &()).map_err(TransportError::io("answering"))
        }
        Request::Arbitrate { name } => {
            let may_still_ask = || again.check().map_err(TransportError::Refused);
            arbitration::serve(service, name, stream, &mut writer, &may_still_ask)
        }
        Request::Snapshot { name, without_databases, only, sums } => {
            let standby = || only.and_then(|_| service.copies());
            let Some(source) = service.source().or_else(standby) else {
                let text = "this instance is not a primary; ask the primary for a copy";
                return Err(TransportError::Refused(Refusal::new(RefuseCode::Source, text)));
            };
            // Who only asks where the redo begins gets no copy.
            let report = |event: ReceiverEvent| (!without_databases).then(|| service.event(&event));
            report(ReceiverEvent::SnapshotStarted { standby: name.clone() });
            let preparing = TransportError::io("preparing a copy");
            // Between two databases the standby makes one durable, which may take long.
            stream.set_read_timeout(Some(hello::NET_TIMEOUT_MAX)).map_err(&preparing)?;
            let sums = sums.then(|| FrameReader::new(stream.clone()));
            let start = send_copies(&*source, *without_databases, *only, sums, again, &mut writer)?;
            report(ReceiverEvent::SnapshotDone { standby: name.clone(), start });
            Ok(())
        }
    }
}

fn send_copies(
    source: &dyn RedoSource,
    without_databases: bool,
    only: Option<DatabaseId>,
    mut sums: Option<FrameReader<LinkEnd>>,
    again: &Again<'_>,
    writer: &mut FrameWriter<LinkEnd>,
) -> Result<Scn, TransportError> {
    let copying = TransportError::io("sending a copy");
    let mut databases = source.databases().map_err(refused)?;
    if without_databases {
        databases.clear();
    }
    databases.retain(|database| only.is_none_or(|id| id == database.id));
    let manifest = Manifest { source: source.identity(), databases };
    writer.write_json(FrameKind::Data, MANIFEST, &manifest).map_err(&copying)?;
    // Without databases the standby begins at the current durable position.
    let mut start = source.durable();
    for database in &manifest.databases {
        let id = u64::from(database.id.0);
        let header = FrameHeader::new(FrameKind::Data, BEGIN, id, 0, 0);
        writer.write(header, &json(database)?).map_err(&copying)?;
        let theirs = sums.as_mut().map(|reader| TheirSums::of(database.id, reader, writer)).transpose();
        let theirs = theirs.map_err(&copying)?;
        let mut pages = PageFrames { writer, database, theirs, first: 1, waiting: Vec::new() };
        let mut ended_by = None;
        let copied = source.snapshot(database.id, &mut |first, bytes| {
            let checked = again.check().map_err(TransportError::Refused);
            let added = checked.and_then(|()| pages.add(first, bytes));
            added.map_err(|error| std::io::Error::other(ended_by.insert(error).to_string()))
        });
        // The right to the copy may be revoked while it is made, which for a large database takes long.
        if let Some(error) = ended_by {
            return Err(error);
        }
        let info = copied.map_err(refused)?;
        pages.end()?;
        writer.write(FrameHeader::new(FrameKind::Data, END, id, 0, 0), &json(&info)?).map_err(&copying)?;
        start = start.min(info.scn);
    }
    let crc = source.stream_crc(start).map_err(refused)?;
    let (Some(crc), Some(log)) = (crc, source.log_containing(start)) else {
        let gone = SourceError::Gone { wanted: start, oldest: source.oldest() };
        return Err(refused(gone));
    };
    let done = SnapshotStart { start, crc: crc.0, log };
    writer.write_json(FrameKind::Done, 0, &done).map_err(&copying)?;
    Ok(start)
}

/// Gathers pages, which may come one by one, into frames worth sending.
struct PageFrames<'a> {
    writer: &'a mut FrameWriter<LinkEnd>,
    database: &'a DatabaseInfo,
    /// Pages that the other end has, if only the others are sent.
    theirs: Option<TheirSums<'a, LinkEnd>>,
    first: PageNo,
    waiting: Vec<u8>,
}

impl PageFrames<'_> {
    fn add(&mut self, first: PageNo, bytes: &[u8]) -> Result<(), TransportError> {
        if self.theirs.is_none() {
            return self.gather(first, bytes);
        }
        for (page_no, page) in (first..).zip(bytes.chunks_exact(self.database.page_size.bytes())) {
            let have =
                self.theirs.as_mut().map(|theirs| theirs.have(page_no, page, self.writer)).transpose()?;
            if have == Some(true) { self.flush()? } else { self.gather(page_no, page)? }
        }
        Ok(())
    }

    /// Takes pages that follow those that wait, if any do.
    fn gather(&mut self, first: PageNo, bytes: &[u8]) -> Result<(), TransportError> {
        if self.waiting.len() + bytes.len() > PAGE_BYTES_PER_FRAME {
            self.flush()?;
        }
        if self.waiting.is_empty() {
            self.first = first;
        }
        self.waiting.extend_from_slice(bytes);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), TransportError> {
        let page_bytes = self.database.page_size.bytes();
        let mut page = u64::from(self.first);
        for bytes in self.waiting.chunks(PAGE_BYTES_PER_FRAME / page_bytes * page_bytes) {
            let header = FrameHeader::new(FrameKind::Data, PAGES, u64::from(self.database.id.0), page, 0);
            self.writer.write(header, bytes).map_err(TransportError::io("sending a copy"))?;
            page += (bytes.len() / page_bytes) as u64;
        }
        self.waiting.clear();
        Ok(())
    }

    fn end(mut self) -> Result<(), TransportError> {
        self.flush()?;
        self.theirs.take().map_or(Ok(()), TheirSums::end)
    }
}

fn json(message: &impl Serialize) -> Result<Vec<u8>, TransportError> {
    serde_json::to_vec(message).map_err(|error| TransportError::Protocol(error.to_string()))
}

fn refused(error: SourceError) -> TransportError {
    TransportError::Refused(Refusal::new(RefuseCode::Source, format!("the copy failed: {error}")))
}

/// Fetches copies of all databases of the primary at `address` for the standby `name`, of the pages that differ if `sink`
/// has others. Returns where its redo begins. The standby should connect soon: the primary keeps that redo only for a
/// limited time.
///
/// # Errors
/// When the primary cannot be reached or refuses, the copy is incomplete, or `sink` fails. The data that `sink` has
/// received is then useless.
pub fn fetch_snapshot(
    address: &str,
    security: &Security,
    name: &str,
    sink: &mut dyn SnapshotSink,
) -> Result<SnapshotStart, TransportError> {
    let request = Request::Snapshot {
        name: name.into(),
        without_databases: !sink.wants_databases(),
        only: None,
        sums: sink.has_pages(),
    };
    fetch(address, security, &request, sink)
}

/// Fetches a copy of one database of the instance at `address`, a primary or a standby, for the instance `name`. The
/// copy holds all commits before its SCN, and possibly later ones.
///
/// # Errors
/// As [`fetch_snapshot`].
pub fn fetch_database(
    address: &str,
    security: &Security,
    name: &str,
    database: DatabaseId,
    sink: &mut dyn SnapshotSink,
) -> Result<SnapshotStart, TransportError> {
    let (name, only) = (name.into(), Some(database));
    let request = Request::Snapshot { name, without_databases: false, only, sums: sink.has_pages() };
    fetch(address, security, &request, sink)
}

fn fetch(
    address: &str,
    security: &Security,
    request: &Request,
    sink: &mut dyn SnapshotSink,
) -> Result<SnapshotStart, TransportError> {
    let mut reader = ask(address, security, request, COPY_SILENCE)?;
    reader.allow_redo();
    reader.inner().allow_large_reads();
    let mut writer = FrameWriter::new(reader.inner().clone());
    let mut fetch = Fetch { sink, current: None, left: Vec::new(), manifest_seen: false };
    loop {
        let frame = reader.read()?;
        match frame.header.kind {
            FrameKind::Done if fetch.is_complete() => return hello::decode(&frame),
            FrameKind::Data if frame.header.a == SUMS => fetch.answer_sums(&frame, &mut writer)?,
            FrameKind::Data => fetch.take(&frame)?,
            _ => hello::expect(&frame, FrameKind::Data)?,
        }
    }
}

/// Fetches the observation of the instance at `address`, as JSON text; with `history` also its recorded history. Gives
/// up after a silence of `silence`.
///
/// # Errors
/// When it cannot be reached, refuses or does not answer.
pub fn fetch_status(
    address: &str,
    security: &Security,
    history: bool,
    silence: Duration,
) -> Result<String, TransportError> {
    let mut reader = ask(address, security, &Request::Status { history }, silence)?;
    reader.allow_redo();
    let frame = reader.read()?;
    hello::expect(&frame, FrameKind::Done)?;
    let mut state: serde_json::Value = hello::decode(&frame)?;
    if make_printable(&mut state) {
        return Ok(state.to_string());
    }
    String::from_utf8(frame.payload.to_vec())
        .map_err(|_| TransportError::Protocol("a state that is not text".into()))
}

/// Why a standby gave no answer to a request to take over.
#[derive(Debug)]
pub enum NotTakenOver {
    /// The request did not reach it, or it has refused: it is still a standby.
    Certain(TransportError),
    /// The request may have reached it: whether it takes over is not known.
    Unknown(TransportError),
}

/// Asks the standby at `address` to take over from this primary, or whether it is ready to. Gives up after a silence of
/// `silence`.
///
/// # Errors
/// See [`NotTakenOver`].
pub fn ask_to_take_over(
    address: &str,
    security: &Security,
    wish: &TakeOver,
    silence: Duration,
) -> Result<TakeOverAnswer, NotTakenOver> {
    let stream = connect(address, security, silence).map_err(NotTakenOver::Certain)?;
    let answer = || {
        let mut reader = request(stream, &Request::TakeOver(Box::new(wish.clone())))?;
        let frame = reader.read()?;
        hello::expect(&frame, FrameKind::Done)?;
        hello::decode(&frame)
    };
    answer().map_err(|error| match error {
        TransportError::Refused(_) => NotTakenOver::Certain(error),
        error => NotTakenOver::Unknown(error),
    })
}

/// Asks the primary at `address` to ship redo to this instance, its `standby`. Gives up after a silence of `silence`.
///
/// # Errors
/// When it cannot be reached or refuses.
pub fn ask_to_follow(
    address: &str,
    security: &Security,
    standby: &NewStandby,
    silence: Duration,
) -> Result<(), TransportError> {
    let mut reader = ask(address, security, &Request::Follow(standby.clone()), silence)?;
    hello::expect(&reader.read()?, FrameKind::Done)
}

/// Makes every text in the state of another instance printable, for terminals and pages. Returns whether anything was
/// changed.
fn make_printable(value: &mut serde_json::Value) -> bool {
    use serde_json::Value;
    // No short-circuit: every element must be visited.
    match value {
        Value::String(text) => {
            let printable = one_line(text);
            let changed = printable != *text;
            *text = printable;
            changed
        }
        Value::Array(items) => items.iter_mut().fold(false, |changed, item| make_printable(item) | changed),
        Value::Object(fields) => {
            fields.values_mut().fold(false, |changed, field| make_printable(field) | changed)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Checks the parts of a copy as they arrive.
struct Fetch<'a> {
    sink: &'a mut dyn SnapshotSink,
    /// The database that is arriving, and the next page expected.
    current: Option<(DatabaseInfo, u64)>,
    /// Announced databases that have not begun.
    left: Vec<DatabaseId>,
    manifest_seen: bool,
}

impl Fetch<'_> {
    fn is_complete(&self) -> bool {
        self.manifest_seen && self.left.is_empty() && self.current.is_none()
    }

    /// Returns the page size of the database whose pages are compared, if the other end may ask for their sums.
    fn compared(&self, asked: FrameHeader) -> Option<PageSize> {
        let (database, _) = self.current.as_ref().filter(|_| self.sink.has_pages())?;
        (asked.b == u64::from(database.id.0)).then_some(database.page_size)
    }

    /// Sends the sums of the pages here that the other end asks for.
    fn answer_sums(
        &mut self,
        frame: &standfast_format::Frame<'_>,
        writer: &mut FrameWriter<LinkEnd>,
    ) -> Result<(), TransportError> {
        let header = frame.header;
        let Some(page_size) = self.compared(header) else {
            return Err(TransportError::Protocol("sums of pages were not to be expected".into()));
        };
        let sink = &mut *self.sink;
        let sums = page_sums::answer(header.c, page_size.bytes(), |page_no, page| sink.page(page_no, page));
        let answer = FrameHeader::new(FrameKind::Data, SUMS, header.b, header.c, 0);
        writer.write(answer, &sums.map_err(sink_failed)?).map_err(TransportError::io("sending sums of pages"))
    }

    fn take(&mut self, frame: &standfast_format::Frame<'_>) -> Result<(), TransportError> {
        let protocol = |text: &str| TransportError::Protocol(format!("copy of a database: {text}"));
        match (frame.header.a, self.current.take()) {
            (MANIFEST, None) if !self.manifest_seen => {
                let manifest: Manifest = hello::decode(frame)?;
                self.manifest_seen = true;
                self.left = manifest.databases.iter().map(|database| database.id).collect();
                self.sink.manifest(&manifest).map_err(sink_failed)
            }
            (BEGIN, None) => {
                let database: DatabaseInfo = hello::decode(frame)?;
                let at =
                    self.left.iter().position(|id| *id == database.id).ok_or(protocol("not announced"))?;
                self.left.remove(at);
                self.sink.begin(&database).map_err(sink_failed)?;
                self.current = Some((database, 1));
                Ok(())
            }
            (PAGES, Some((database, next))) => {
                let page_bytes = database.page_size.bytes();
                let whole = !frame.payload.is_empty() && frame.payload.len().is_multiple_of(page_bytes);
                let first =
                    PageNo::try_from(frame.header.c).map_err(|_| protocol("page number too large"))?;
                let follows =
                    if self.sink.has_pages() { frame.header.c >= next } else { frame.header.c == next };
                let pages = (frame.payload.len() / page_bytes) as u64;
                let fits = frame.header.c.checked_add(pages).is_some_and(|end| end < u64::from(PageNo::MAX));
                if !whole || !follows || !fits || frame.header.b != u64::from(database.id.0) {
                    return Err(protocol("pages out of order"));
                }
                self.sink.pages(database.id, first, frame.payload).map_err(sink_failed)?;
                self.current = Some((database, frame.header.c + pages));
                Ok(())
            }
            (END, Some((database, next))) => {
                let info: SnapshotInfo = hello::decode(frame)?;
                let end = u64::from(info.pages) + 1;
                let is_all = if self.sink.has_pages() { next <= end } else { next == end };
                if info.database != database.id || !is_all {
                    return Err(protocol("fewer or more pages than announced"));
                }
                self.sink.end(&info).map_err(sink_failed)
            }
            _ => Err(protocol("parts out of order")),
        }
    }
}

fn sink_failed(error: StageError) -> TransportError {
    TransportError::Io { what: "keeping the copy", source: std::io::Error::other(error) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use standfast_format::Frame;

    /// Takes one page frame for each of `first`, then the end of a database of `pages` pages.
    fn taken(has_pages: bool, first: &[u64], pages: u32) -> Result<(), TransportError> {
        let (id, page_size) = (DatabaseId(1), PageSize::new(512).unwrap());
        let mut sink = Discarded { has_pages, ..Discarded::new(true) };
        let database = DatabaseInfo { id, name: "a.db".into(), page_size, path: String::new() };
        let current = Some((database, 1));
        let mut fetch = Fetch { sink: &mut sink, current, left: Vec::new(), manifest_seen: true };
        for page in first {
            let header = FrameHeader::new(FrameKind::Data, PAGES, 1, *page, 0);
            fetch.take(&Frame { header, payload: &[0; 512] })?;
        }
        let info = SnapshotInfo { database: id, scn: Scn(5000), pages };
        let end = FrameHeader::new(FrameKind::Data, END, 1, 0, 0);
        fetch.take(&Frame { header: end, payload: &json(&info)? })
    }

    #[test]
    fn pages_come_in_order_and_without_gaps_unless_they_are_differences() {
        assert!(taken(false, &[1, 2, 3], 3).is_ok());
        assert!(taken(false, &[1, 3], 3).is_err(), "a gap");
        assert!(taken(false, &[1, 2], 3).is_err(), "the last one is missing");
        assert!(taken(true, &[2, 7], 9).is_ok());
        assert!(taken(true, &[], 9).is_ok(), "nothing differs");
        assert!(taken(true, &[7, 2], 9).is_err(), "backwards");
        assert!(taken(true, &[2, 2], 9).is_err(), "twice");
        assert!(taken(true, &[7], 6).is_err(), "beyond the end");
    }

    #[test]
    fn page_numbers_that_no_database_has_are_refused() {
        for page in [0, u64::from(PageNo::MAX) - 1, u64::from(PageNo::MAX), 1 << 32, u64::MAX] {
            assert!(matches!(taken(true, &[page], PageNo::MAX), Err(TransportError::Protocol(_))), "{page}");
        }
    }

    #[test]
    fn sums_are_given_only_for_the_database_that_is_compared() {
        let request = |has_pages: bool, id: u64| {
            let mut sink = Discarded { has_pages, ..Discarded::new(true) };
            let page_size = PageSize::new(512).unwrap();
            let database =
                DatabaseInfo { id: DatabaseId(1), name: "a.db".into(), page_size, path: String::new() };
            let fetch = Fetch {
                sink: &mut sink,
                current: Some((database, 1)),
                left: Vec::new(),
                manifest_seen: true,
            };
            fetch.compared(FrameHeader::new(FrameKind::Data, SUMS, id, 1, 0)).is_some()
        };
        assert!(request(true, 1));
        assert!(!request(true, 2) && !request(false, 1));
    }
}
