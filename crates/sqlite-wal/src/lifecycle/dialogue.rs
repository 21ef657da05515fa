//! Inputs of the machine and its requests.

/// What is to be done with the WAL now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Action {
    /// Nothing until the next look.
    #[default]
    Rest,
    /// Take a snapshot of the WAL and the SCN up to which it holds everything; then `WalLifecycle::snapshot`.
    TakeSnapshot,
    /// Sync the WAL and backfill what readers allow, and sync the database file; then `WalLifecycle::backfilled`.
    Backfill {
        /// The WAL is not long yet: the pass may pause.
        may_pause: bool,
        /// Complete the database file to a state, because the frames behind it are to be a deferred suffix.
        defers: bool,
    },
    /// Count the distinct pages in the frames after `after`; then `WalLifecycle::counted`.
    CountPages { after: u32 },
    /// Write the newest version of each page of the suffix over the prefix; then `WalLifecycle::rewritten`.
    Rewrite,
    /// Backfill everything and restart the WAL; then `WalLifecycle::reset`.
    Reset,
}

/// What a look at a WAL shows, and the limits that apply to it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Look {
    /// Salts of the WAL, in the byte order of the file.
    pub raw_salts: [u32; 2],
    /// Frames of the WAL (mxFrame).
    pub frames: u32,
    /// Frames that are in the database file (nBackfill).
    pub backfilled: u32,
    /// Size of the database in pages.
    pub database_pages: u32,
    /// The WAL has grown since the last look.
    pub grows: bool,
    /// Frames after which a prefix is backfilled, at most.
    pub backfill_frames: u32,
    /// Frames behind the prefix at which the WAL is long.
    pub reset_frames: u32,
    /// The same for a WAL that need not share that length with others.
    pub reset_frames_alone: u32,
}

/// Outcome of [`Action::Rewrite`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rewrite {
    /// The new WAL has these salts and so many frames.
    Done { raw_salts: [u32; 2], frames: u32 },
    /// A connection or an error is in the way.
    Later,
    /// The WAL does not fit into the space of its prefix, or is not one that can be rewritten.
    Impossible,
}
