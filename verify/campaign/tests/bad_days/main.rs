//! Bad input and bad days, with real processes: what is refused, with which message and exit code, and what happens
//! when a disk, a network, a process or an operator fails.
//!
//! The programs come from `$STANDFAST_BIN`, else from the build directory of this test. Missing programs fail the
//! tests.

// Helpers of tests are tests: a panic is how they fail.
#![allow(clippy::unwrap_used)]

mod archives;
mod attached;
mod cascade;
mod changed_files;
mod clocks;
mod commands;
mod containers;
mod creation;
mod damage;
mod delay;
mod destinations;
mod dg;
mod doctor;
mod double_faults;
mod down;
mod exec;
mod failed_sync;
mod far_sync;
mod fast_start;
mod fast_start_etcd;
mod foreign;
mod foreign_down;
mod foreign_writers;
mod frames;
mod fresh_reads;
mod gap;
mod held;
mod hostile_files;
mod instruments;
mod isolation;
mod journals;
mod known_complete;
mod local_users;
mod log_groups;
mod log_volume;
mod lost_members;
mod marker;
mod matrix;
mod members;
mod network;
mod offline;
mod other_local_users;
mod permissions;
mod places;
mod probes;
mod protection;
mod readers;
mod refused;
mod register;
mod reinstate;
mod renewal;
mod resolve;
mod rights;
mod roles;
mod security;
mod service_user;
mod shared_configuration;
mod shared_memory;
mod snapshot_standby;
mod standby;
mod standby_files;
mod stops;
mod support;
mod switchover;
mod unauthenticated;
mod unreadable_redo;
mod verify;
mod views;
mod wal_length;
mod wal_rewrite;
mod writers;
