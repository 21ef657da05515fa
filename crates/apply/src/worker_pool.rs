//! A worker pool that partitions databases over threads.

use crate::database::Database;
use crate::dirty_pages::DirtyPages;
use std::sync::Mutex;

/// Bytes of redo below which another thread costs more than it gains.
pub const WORTH_A_THREAD: usize = 256 << 10;

/// Runs `work` on every database, on the calling thread and on one more thread for each further dirty-page map.
/// Databases are taken in order, so the largest jobs should come first.
pub fn run_on_workers<'d>(
    databases: impl IntoIterator<Item = &'d mut Database>,
    dirty_pages: &mut [DirtyPages],
    work: impl Fn(&mut Database, &mut DirtyPages) + Sync,
) {
    let databases: Vec<_> = databases.into_iter().collect();
    let threads = dirty_pages.len().min(databases.len());
    let Some((own, others)) = dirty_pages[..threads].split_first_mut() else { return };
    if others.is_empty() {
        databases.into_iter().for_each(|database| work(database, own));
        return;
    }
    let jobs = Mutex::new(databases.into_iter());
    let run = |dirty_pages: &mut DirtyPages| {
        loop {
            let next = jobs.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).next();
            let Some(database) = next else { break };
            work(database, dirty_pages);
        }
    };
    let run = &run;
    std::thread::scope(|scope| {
        for dirty_pages in others {
            // The other threads take the share of a thread that cannot be started.
            let _ = std::thread::Builder::new()
                .name("apply".to_owned())
                .spawn_scoped(scope, move || run(dirty_pages));
        }
        run(own);
    });
}
