//! Reads the WAL of a live database and guards it; page capture.
