//! Repair: sends pages that differ.

use super::ROUNDS;
use super::run::{Obstacle, Run};
use super::standbys::{pages_to_repair, standbys};
use standfast_documents::verification::DatabaseResult;
use standfast_environment::config::error::InstanceError;
use standfast_environment::state::control::DatabaseRecord;
use standfast_types::{Hint, PageNo};

/// Page bytes in one repair record.
const REPAIR_BYTES: usize = 192 << 10;
/// Limit of iterations of a repair; each covers the pages that standbys reported.
const REPAIR_ROUNDS: usize = 100;

impl Run<'_> {
    fn note_repair(&self, name: &str, change: impl FnOnce(&mut DatabaseResult)) {
        self.verification().update(|progress| {
            if let Some(found) = progress.databases.iter_mut().find(|database| database.name == name) {
                change(found);
            }
        });
    }

    /// Sends the pages of a database that standbys have reported.
    pub(super) fn repair(&self, record: &DatabaseRecord) -> Result<(), InstanceError> {
        let name = &record.name;
        if pages_to_repair(&standbys(self.primary), name).0.is_empty() {
            return self.note_agreed(name);
        }
        let refused = |why: String| self.note_repair(name, |found| found.not_repaired = Some(why));
        let checked = self.open(record).and_then(|reader| {
            let reported: String = reader.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
            Ok((reader, reported))
        });
        let mut reader = match checked {
            Ok((reader, reported)) if reported == "ok" => reader,
            Ok((_, reported)) => {
                refused(format!("the database here is damaged itself: {reported}"));
                return Ok(());
            }
            Err(error) => {
                refused(format!("the database here cannot be checked: {}", error.for_terminal()));
                return Ok(());
            }
        };
        let chunk_pages = (REPAIR_BYTES / record.page_size.bytes()).max(1);
        let mut fewest = usize::MAX;
        let mut futile = 0;
        for _ in 0..REPAIR_ROUNDS {
            let pages: Vec<PageNo> = pages_to_repair(&standbys(self.primary), name).0.into_iter().collect();
            futile = if pages.len() < fewest { 0 } else { futile + 1 };
            fewest = fewest.min(pages.len());
            if pages.is_empty() || futile > ROUNDS {
                break;
            }
            for pages in pages.chunks(chunk_pages) {
                match self.record(record, &mut reader, pages, true) {
                    Ok(chunk) => {
                        self.note_repair(name, |found| {
                            found.repaired += chunk.pages;
                            found.scn = Some(chunk.scn);
                        });
                        self.await_applied(chunk.scn)?;
                    }
                    Err(Obstacle::Skipped(why)) => {
                        refused(why);
                        return Ok(());
                    }
                    Err(Obstacle::Ended(error)) => return Err(error),
                }
            }
        }
        self.note_agreed(name)
    }

    fn note_agreed(&self, name: &str) -> Result<(), InstanceError> {
        let (_, agreed) = pages_to_repair(&standbys(self.primary), name);
        if let Some(first) = agreed.first() {
            let why = format!(
                "several standbys hold the same other content of {} pages, page {first} the first: the page here is \
                 likely to be the damaged one",
                agreed.len()
            );
            self.note_repair(name, |found| found.not_repaired = Some(why));
        }
        Ok(())
    }
}
