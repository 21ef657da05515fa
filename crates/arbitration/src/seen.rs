//! Notices a store that has gone back to an older record: it was restored from a backup, or was emptied.
//!
//! Members trust a store, because it compares and sets. One that comes back older could name a target that lacks what has
//! been acknowledged since. So each member remembers how far the store had come, durably where it matters: when
//! what the record states changes. A store that falls behind that is trusted no more.

use crate::record::{Incarnation, Record, Standing};
use standfast_types::IncarnationNo;

/// What a record states, but for how far the primary has come.
type Stated = (String, Incarnation, Standing, Vec<String>);

/// How far a store had come.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Serial number of the newest record that was seen; 0: none.
    serial: u64,
    /// Number of the newest incarnation that was seen. No backup of the store knows a newer one.
    incarnation: IncarnationNo,
    stated: Option<Stated>,
}

/// The store has an older record than before, or none any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GoneBack {
    /// 0: none.
    pub to: u64,
    pub seen: u64,
}

impl Seen {
    /// `durable`: the serial number that was made durable last; 0: none. `incarnation`: the one that this member knows.
    pub fn new(durable: u64, incarnation: IncarnationNo) -> Seen {
        Seen { serial: durable, incarnation, stated: None }
    }

    /// Takes the record that the store has. Returns a serial number that has to be durable before the record counts.
    ///
    /// # Errors
    /// When the store has gone back.
    pub fn take(&mut self, record: Option<&Record>) -> Result<Option<u64>, GoneBack> {
        let serial = record.map_or(0, |record| record.serial);
        let incarnation = record.map_or(self.incarnation, |record| record.incarnation.number);
        // A primary whose place was given away hears it, whatever the member that got it had seen.
        let is_given = record.is_some_and(|record| record.standing.is_given());
        let is_newer = incarnation > self.incarnation || incarnation == self.incarnation && is_given;
        if serial < self.serial && !is_newer {
            return Err(GoneBack { to: serial, seen: self.serial });
        }
        self.serial = serial;
        self.incarnation = self.incarnation.max(incarnation);
        let stated =
            record.map(|at| (at.primary.clone(), at.incarnation, at.standing.clone(), at.candidates.clone()));
        if stated == self.stated {
            return Ok(None);
        }
        self.stated = stated;
        Ok(Some(serial))
    }
}
