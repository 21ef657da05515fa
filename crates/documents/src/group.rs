//! Groups of a redo log, in the status and in the catalogue.

document! {
    /// A group of the redo log.
    Group {
        /// Its number.
        group: u64,
        /// `current`, `active`, `inactive` or `unused`.
        state: String,
        /// Sequence of the log in it; `None`: it is unused.
        sequence: u64,
        first_scn: u64,
        /// When its log began, microseconds since the Unix epoch.
        first_time_us: u64,
        /// End of its log; `None` for the current one.
        next_scn: u64,
        archived: bool,
        /// Bytes of each of its files.
        bytes: u64,
        members: Vec<String>,
        /// Members that are neither read nor written.
        lost_members: Vec<String>,
    }
}
