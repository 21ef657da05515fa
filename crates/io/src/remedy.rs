//! Remedies for errors of the operating system, as far as the kind of error tells.

use standfast_types::Hint;
use standfast_types::hint::Hinted;
use std::borrow::Cow;
use std::io::{Error, ErrorKind};

/// Returns what to do about the error: the hint of the error that it was made of, or what its kind tells; `None` when
/// neither is known.
pub fn remedy(error: &Error) -> Option<Cow<'_, str>> {
    let hinted = error.get_ref().and_then(|inner| inner.downcast_ref::<Hinted>());
    hinted.map_or_else(|| remedy_of_kind(error).map(Cow::Borrowed), Hint::hint)
}

fn remedy_of_kind(error: &Error) -> Option<&'static str> {
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
            let error = Error::from_raw_os_error(code);
            let found = remedy(&error);
            assert!(found.as_ref().is_some_and(|found| found.contains(word)), "{code}: {found:?}");
        }
        assert_eq!(remedy(&Error::other("a wire came off")), None);
    }

    #[test]
    fn error_made_of_one_with_a_hint_keeps_it() {
        #[derive(Debug)]
        struct Unplugged;
        impl std::fmt::Display for Unplugged {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a wire came off")
            }
        }
        impl Hint for Unplugged {
            fn hint(&self) -> Option<Cow<'_, str>> {
                Some("plug it in".into())
            }
        }
        let error = Error::other(Hinted::of(&Unplugged));
        assert_eq!(error.to_string(), "a wire came off");
        assert_eq!(remedy(&error).as_deref(), Some("plug it in"));
    }
}
