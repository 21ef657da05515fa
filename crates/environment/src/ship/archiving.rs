//! Archiving of full groups, and waits for it.

use standfast_instruments::{Event, Waiting, waiting};
use standfast_log::{LogError, RedoLog, SwitchBlocked, archive_group, remove_archived};
use standfast_types::Scn;
use std::time::Duration;

/// Pause after reading or writing 256 KiB, which takes a device about as long.
const ARCHIVE_PAUSE: Duration = Duration::from_millis(1);

/// Archives all full groups, slowly, and removes archived logs beyond the size limit.
///
/// # Errors
/// When a copy cannot be written.
pub fn archive_all(log: &RedoLog, bytes_max: u64, needed_from: Scn) -> Result<(), LogError> {
    archive_with(log, &mut || leave_the_device(log))?;
    remove_archived(log, bytes_max, needed_from)?;
    Ok(())
}

/// Archives all full groups without a pause: a change of the role waits for it, and no commit uses the device.
///
/// # Errors
/// When a copy cannot be written.
pub fn archive_at_once(log: &RedoLog) -> Result<(), LogError> {
    archive_with(log, &mut || ())
}

fn archive_with(log: &RedoLog, pause: &mut dyn FnMut()) -> Result<(), LogError> {
    for (group, _) in log.to_archive() {
        let wait = waiting(Event::LogArchiveIo);
        archive_group(log, group, pause)?;
        drop(wait);
    }
    Ok(())
}

/// Pauses between two chunks of an archived log, which leaves the device to redo writers; not when the archiver is so
/// far behind that they would soon wait for it.
pub fn leave_the_device(log: &RedoLog) {
    if !log.archiver_is_behind() {
        std::thread::sleep(ARCHIVE_PAUSE);
    }
}

/// Changes the current wait to `event`, or begins one.
pub fn wait_for(wait: &mut Option<Waiting>, event: Event) {
    match wait {
        Some(wait) => wait.become_one_for(event),
        None => *wait = Some(waiting(event)),
    }
}

/// Wait event of a blocked log switch.
pub fn event_of(why: SwitchBlocked) -> Event {
    match why {
        SwitchBlocked::CheckpointIncomplete => Event::SwitchCheckpointIncomplete,
        SwitchBlocked::ArchivingNeeded => Event::SwitchArchivingNeeded,
    }
}
