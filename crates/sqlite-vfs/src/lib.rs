//! The VFS shim inside applications: commit notice, wait, queue.
