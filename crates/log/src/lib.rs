//! Log buffer, log writer, online and standby redo logs, archiver, recovery.
