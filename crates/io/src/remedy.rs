//! Remedies for errors of the operating system, as far as the kind of error tells.

use std::io::{Error, ErrorKind};

/// A remedy in words; `None` when the kind of error has none of its own.
pub fn remedy(error: &Error) -> Option<&'static str> {
    Some(match error.kind() {
        ErrorKind::StorageFull => "make room on its file system; `df -h` and `df -i` show what is full",
        ErrorKind::QuotaExceeded => "make room within the quota of the user that runs the instance",
        ErrorKind::FileTooLarge => {
            "raise the limit of the file size (`ulimit -f`) for the user that runs the instance"
        }
        // Not an error of the system: see `outside`.
        ErrorKind::PermissionDenied if error.raw_os_error().is_none() => {
            "remove the link, or, if it is meant, make it root's or that of the user who runs this (`chown -h`)"
        }
        ErrorKind::PermissionDenied => {
            "give the user that runs the instance access to it and to every directory above it"
        }
        ErrorKind::ReadOnlyFilesystem => {
            "its file system is mounted read-only; look for errors of the device (`dmesg`), then mount it for writing"
        }
        ErrorKind::NotFound => "check the path, and that its file system is mounted",
        ErrorKind::NotADirectory => "a part of the path is not a directory; check what is in its place",
        ErrorKind::IsADirectory => "a directory is in the place of the file; move it away",
        ErrorKind::AlreadyExists => "move away what is there already",
        ErrorKind::UnexpectedEof => "the file is shorter than it was made; restore it",
        _ => return remedy_of_code(error.raw_os_error()?),
    })
}

fn remedy_of_code(code: i32) -> Option<&'static str> {
    Some(match code {
        libc::EIO | libc::ENODEV | libc::ENXIO | libc::ESTALE => {
            "look after the device or the mount (`dmesg`, `smartctl`); do not trust it before you know the cause"
        }
        libc::EMFILE | libc::ENFILE => "raise the limit of open files (`ulimit -n`, LimitNOFILE)",
        libc::EAGAIN => "raise the limit of threads (`ulimit -u`, TasksMax)",
        libc::ENOMEM => "free memory, or raise the memory limit of the service",
        libc::EINVAL => {
            "its file system may refuse direct writes of this size; use another one, or larger blocks"
        }
        _ => return None,
    })
}

/// [`remedy`] as the last line of a message, `hint: ...` on a line of its own, or nothing.
pub fn hint(error: &Error) -> String {
    remedy(error).map_or_else(String::new, |remedy| format!("\nhint: {remedy}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_an_operator_can_fix_has_a_remedy() {
        for (code, word) in [
            (libc::ENOSPC, "room"),
            (libc::EDQUOT, "quota"),
            (libc::EACCES, "access"),
            (libc::EPERM, "access"),
            (libc::EROFS, "read-only"),
            (libc::ENOENT, "mounted"),
            (libc::EIO, "device"),
            (libc::EMFILE, "open files"),
        ] {
            let said = hint(&Error::from_raw_os_error(code));
            assert!(said.starts_with("\nhint: ") && said.contains(word), "{code}: {said}");
        }
        assert_eq!(hint(&Error::other("a wire came off")), "");
    }
}
