//! Archived logs as they are sent to standbys that lack them.

use crate::ship::source_error::source_error;
use crate::state::control::Incarnation;
use standfast_format::{LogFileHeader, StreamCrc, decode_block, incarnation_tag};
use standfast_io::{Disk, LogFile};
use standfast_log::RedoLog;
use standfast_transport::{ArchivedFile, ArchivedLogInfo, SourceError, StageError};
use standfast_types::{IncarnationId, Scn, hint};
use std::path::PathBuf;
use std::sync::Arc;

/// Whether a log with these limits belongs to the stream with this history: a log of an abandoned branch does not.
pub fn is_of_history(history: &[Incarnation], id: IncarnationId, first: Scn, next: Scn) -> bool {
    let Some(at) = history.iter().position(|incarnation| incarnation.id == id) else { return false };
    let ends = history.get(at + 1).map_or(Scn(u64::MAX), |following| following.branch);
    history[at].branch <= first && next <= ends
}

/// Returns the archived logs of `log` that continue from `from`, up to `upto` at most; see
/// [`standfast_transport::RedoSource::archived_from`].
///
/// # Errors
/// When a log cannot be read.
pub fn archived_from(
    log: &RedoLog,
    history: &[Incarnation],
    from: Scn,
    upto: Scn,
) -> Result<Option<(Vec<ArchivedLogInfo>, StreamCrc)>, SourceError> {
    let archived = log.archived();
    let (mut chain, mut at) = (Vec::new(), from);
    loop {
        let next = archived.iter().find_map(|log| {
            let header = &log.header;
            let next =
                header.next_scn.filter(|next| header.first_scn <= at && at < *next && *next <= upto)?;
            is_of_history(history, header.incarnation_id, header.first_scn, next).then(|| info(header, next))
        });
        let Some(next) = next else { break };
        at = next.next_scn;
        chain.push(next);
    }
    if chain.is_empty() {
        return Ok(None);
    }
    Ok(log.stream_crc(at).map_err(source_error)?.map(|crc| (chain, crc)))
}

fn info(header: &LogFileHeader, next: Scn) -> ArchivedLogInfo {
    ArchivedLogInfo {
        incarnation: header.incarnation,
        incarnation_id: header.incarnation_id,
        sequence: header.sequence,
        first_scn: header.first_scn,
        next_scn: next,
        bytes: header.file_bytes,
        crc: header.stream_crc.0,
    }
}

/// Opens an archived log for sending.
///
/// # Errors
/// `Gone` when the log is not there any more, `Failed` when it cannot be opened.
pub fn open(
    disk: &dyn Disk,
    log: &RedoLog,
    wanted: &ArchivedLogInfo,
) -> Result<Box<dyn ArchivedFile>, SourceError> {
    let found = log
        .archived()
        .into_iter()
        .find(|log| log.header.next_scn.is_some_and(|next| info(&log.header, next) == *wanted));
    let Some(found) = found else {
        return Err(SourceError::Gone { wanted: wanted.first_scn, oldest: log.oldest() });
    };
    let cannot = |error: std::io::Error| {
        let what = format!("cannot open {}: {error}", found.path.display());
        SourceError::Failed(hint::in_one_line(what, standfast_io::remedy(&error).as_deref()).into())
    };
    let file = disk.open(&found.path).map_err(cannot)?;
    Ok(Box::new(SentLog { file, path: found.path, header: found.header }))
}

struct SentLog {
    file: Arc<dyn LogFile>,
    path: PathBuf,
    header: LogFileHeader,
}

impl ArchivedFile for SentLog {
    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), StageError> {
        let path = self.path.display();
        let cannot = |error: std::io::Error| {
            hint::in_one_line(format!("cannot read {path}: {error}"), standfast_io::remedy(&error).as_deref())
        };
        self.file.read_at(out, offset).map_err(cannot)?;
        let block_bytes = self.header.block_bytes as usize;
        let first = offset / block_bytes as u64;
        for (number, block) in (first..).zip(out.chunks(block_bytes)) {
            if !self.is_right(number, block) {
                let remedy = "restore the file from a backup or from a standby that has it";
                return Err(
                    hint::in_one_line(format!("block {number} of {path} is damaged"), Some(remedy)).into()
                );
            }
        }
        Ok(())
    }
}

impl SentLog {
    fn is_right(&self, number: u64, block: &[u8]) -> bool {
        if number == 0 {
            return block
                .get(..512)
                .is_some_and(|header| LogFileHeader::decode(header).ok() == Some(self.header));
        }
        decode_block(block).is_ok_and(|header| {
            u64::from(header.number) == number
                && header.sequence == self.header.sequence
                && header.incarnation_tag == incarnation_tag(self.header.incarnation_id)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_of_an_abandoned_branch_are_not_part_of_the_stream() {
        let incarnation = |number, id, branch| Incarnation {
            number,
            id: IncarnationId([id; 8]),
            branch: Scn(branch),
            time_us: 0,
        };
        let history = [incarnation(1, 1, 4096), incarnation(2, 2, 9000)];
        let is = |id, first, next| is_of_history(&history, IncarnationId([id; 8]), Scn(first), Scn(next));
        assert!(is(1, 4096, 9000) && is(2, 9000, 20_000));
        assert!(!is(1, 8000, 9001), "beyond the branch");
        assert!(!is(2, 8999, 9500), "before it");
        assert!(!is(3, 4096, 5000), "of another one");
    }
}
