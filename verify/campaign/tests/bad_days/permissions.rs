//! Permissions of the files that an instance creates.

use crate::support::{INSERT, Place, assert_same, must, start};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

#[track_caller]
fn mode(path: impl AsRef<Path>) -> u32 {
    let path = path.as_ref();
    let metadata = std::fs::metadata(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    metadata.permissions().mode() & 0o777
}

#[test]
fn socket_and_shared_memory_permissions_ignore_the_umask() {
    let place = Place::new("mode");
    let (mut primary, database) = place.protecting();
    let marker = std::fs::read_to_string(format!("{}-standfast", database.display())).unwrap();
    let segment = marker.lines().find_map(|line| line.strip_prefix("segment=")).unwrap();
    // With bits that a common umask removes.
    for configured in ["0660", "0600", "0666"] {
        primary.stop().unwrap();
        primary.configure("instance", "mode", configured).unwrap();
        start(&mut primary);
        let wanted = u32::from_str_radix(configured, 8).unwrap();
        assert_eq!((mode(primary.directory.join("control.sock")), mode(segment)), (wanted, wanted));
    }
}

#[test]
fn standby_databases_are_accessible_only_to_its_user() {
    let place = Place::new("private");
    let (primary, standby, database) = place.pair(&[]);
    // One database was copied, the other one came through the redo.
    let later = place.database("later.db");
    must(&primary, &["protect", &later.to_string_lossy()]);
    for original in [&database, &later] {
        place.application(original).run(INSERT);
        assert_same(&primary, &standby, original);
        let copy = standby.standby_database(&original.file_name().unwrap().to_string_lossy());
        for suffix in ["", "-wal", "-shm"] {
            assert_eq!(mode(format!("{}{suffix}", copy.display())), 0o600, "{}{suffix}", copy.display());
        }
        assert_eq!(mode(copy.parent().unwrap()), 0o750);
    }
}
