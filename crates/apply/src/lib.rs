//! Standby redo into database pages.
