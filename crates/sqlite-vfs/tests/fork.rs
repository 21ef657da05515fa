//! A process that forks with a protected database open. A program of its own, because nothing else may run beside it.

#![allow(clippy::unwrap_used)]

#[path = "shim/fake.rs"]
mod fake;
#[allow(dead_code, reason = "shared with the other tests, which use more of it")]
#[path = "shim/support.rs"]
mod support;

use support::{count, insert, open, protected};

#[test]
fn forked_child_takes_its_own_session_and_leaves_the_parents() {
    let (_scratch, instance, path) = protected("fork");
    let connection = open(&path);
    insert(&connection).unwrap();
    let sessions = || instance.segment.sessions().map(|session| session.1).collect::<Vec<_>>();
    assert_eq!(sessions(), [std::process::id()]);
    // SAFETY: no other thread of this process holds a lock that the child needs.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        // SQLite forbids using the parent's connection here; closing it is what happens when a script ends.
        drop(connection);
        let own = std::panic::catch_unwind(|| {
            let connection = open(&path);
            insert(&connection).unwrap();
            assert!(sessions().contains(&std::process::id()));
            count(&connection)
        });
        // SAFETY: ends the child without running the parent's destructors.
        unsafe { libc::_exit(i32::from(!matches!(own, Ok(2)))) };
    }
    let mut status = 0;
    // SAFETY: our child, and a place for its status.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "the child failed");
    assert_eq!(sessions(), [std::process::id()], "the parent's session is still there");
    insert(&connection).unwrap();
    assert_eq!(count(&connection), 3);
}
