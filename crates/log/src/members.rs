//! Writing one buffer to all members of a group at once; the write ends with the slowest.

use standfast_io::{AlignedBuf, LogFile};
use std::io::{Error, Result};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

struct Job {
    file: Arc<dyn LogFile>,
    data: Arc<AlignedBuf>,
    bytes: usize,
    offset: u64,
}

struct Helper {
    jobs: SyncSender<Job>,
    results: Receiver<Result<()>>,
}

/// One thread per member beyond the first; none for a single member.
pub struct MemberWriters {
    helpers: Vec<Helper>,
}

impl MemberWriters {
    pub fn new(members: usize) -> Result<MemberWriters> {
        let helpers = (1..members).map(|_| spawn_helper()).collect::<Result<Vec<_>>>()?;
        Ok(MemberWriters { helpers })
    }

    /// Writes the first `bytes` bytes of `data` at `offset` of every file, durably.
    pub fn write(&self, files: &[Arc<dyn LogFile>], data: &Arc<AlignedBuf>, bytes: usize, offset: u64) -> Result<()> {
        let Some((first, others)) = files.split_first() else { return Ok(()) };
        for (helper, file) in self.helpers.iter().zip(others) {
            let job = Job { file: file.clone(), data: data.clone(), bytes, offset };
            helper.jobs.send(job).map_err(|_| Error::other("a member writer has ended"))?;
        }
        let mut result = first.write_durable(&data[..bytes], offset);
        for (helper, _) in self.helpers.iter().zip(others) {
            let other = helper.results.recv().unwrap_or_else(|_| Err(Error::other("a member writer has ended")));
            result = result.and(other);
        }
        result
    }
}

fn spawn_helper() -> Result<Helper> {
    let (jobs, incoming) = sync_channel::<Job>(1);
    let (outgoing, results) = sync_channel(1);
    std::thread::Builder::new().name("lgwr-member".into()).spawn(move || {
        for Job { file, data, bytes, offset } in incoming {
            let result = file.write_durable(&data[..bytes], offset);
            // The buffer goes back to the log writer before it hears of the end of the write.
            drop(data);
            if outgoing.send(result).is_err() {
                return;
            }
        }
    })?;
    Ok(Helper { jobs, results })
}
