//! Access control of the control socket. The kernel identifies the peer ([`Peer`]); the right that a request needs is a
//! property of the request ([`Request::needs`]). Docs: docs/security.md, "Three permissions".
//!
//! - *Use* a database: its file and the shared memory, protected by their permissions; needs no request.
//! - *Look*: every user who may connect to the socket, so that applications can query views through SQL.
//! - *Administer*: root and the user of the instance; no file permission grants it to another user.

use crate::server::request::{ControlRight, Request};
use standfast_environment::config::error::InstanceError;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

/// The user who connected. The identity is fixed at connect time, whatever the process does later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// User ID in the user namespace of this process.
    pub uid: u32,
}

impl Peer {
    /// Returns the peer of a connection.
    ///
    /// # Errors
    /// The system's.
    pub fn of(stream: &UnixStream) -> io::Result<Peer> {
        let mut found = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
        let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
        // SAFETY: an open socket, and room of the given size for the result.
        let rc = unsafe {
            libc::getsockopt(
                stream.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                (&raw mut found).cast(),
                &raw mut bytes,
            )
        };
        if rc == 0 { Ok(Peer { uid: found.uid }) } else { Err(io::Error::last_os_error()) }
    }
}

/// Users of other namespaces without a number in this one appear as this one, so it identifies no user.
const OVERFLOW: u32 = 65_534;

/// The users who may administer this instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Administrators {
    /// User of the process that serves the instance.
    pub instance: u32,
}

impl Administrators {
    /// Returns the administrators of the instance that this process serves.
    pub fn of_this_process() -> Administrators {
        // SAFETY: has no preconditions.
        Administrators { instance: unsafe { libc::geteuid() } }
    }

    pub fn has(self, peer: Peer) -> bool {
        peer.uid == 0 || (peer.uid == self.instance && peer.uid != OVERFLOW)
    }

    /// Checks that `peer` may make the request.
    ///
    /// # Errors
    /// `Refused`, with the user, the request, and who may make it.
    pub fn check(self, peer: Peer, request: &Request) -> Result<(), InstanceError> {
        if request.needs() == ControlRight::Look || self.has(peer) {
            return Ok(());
        }
        let Administrators { instance } = self;
        let who = match instance {
            0 | OVERFLOW => "root".to_owned(),
            _ => format!("root and uid {instance}, as which the instance runs"),
        };
        let as_whom = if instance == OVERFLOW { 0 } else { instance };
        Err(InstanceError::refused(
            format!(
                "uid {} may look at this instance and may not administer it: `{}` is for {who}",
                peer.uid,
                request.name()
            ),
            format!("give the command as that user: `sudo -u '#{as_whom}' standfast ...`"),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use standfast_transport::Rights;
    use standfast_types::Hint;

    fn peer(uid: u32) -> Peer {
        Peer { uid }
    }

    #[test]
    fn only_root_and_the_instance_user_may_administer() {
        let stop = &Request::Stop;
        let instance = Administrators { instance: 990 };
        for (uid, may) in [(0, true), (990, true), (991, false), (OVERFLOW, false), (u32::MAX, false)] {
            assert_eq!(instance.check(peer(uid), stop).is_ok(), may, "uid {uid}");
            instance.check(peer(uid), &Request::Status).unwrap();
        }
        let unmapped = Administrators { instance: OVERFLOW };
        assert!(unmapped.check(peer(OVERFLOW), stop).is_err(), "every user without a number looks like it");
        assert!(unmapped.check(peer(0), stop).is_ok());
    }

    #[test]
    fn refusal_names_the_user_the_request_and_the_administrators() {
        let token = Request::IssueToken { name: "x".into(), rights: Rights::default(), ttl_s: 1 };
        let reported =
            Administrators { instance: 990 }.check(peer(60_001), &token).unwrap_err().for_terminal();
        for word in ["uid 60001", "`issue-token`", "root and uid 990", "sudo -u '#990'"] {
            assert!(reported.contains(word), "{word}: {reported}");
        }
    }

    #[test]
    fn changing_the_protection_mode_needs_the_administer_right() {
        assert_eq!(Request::ProtectionMode { mode: None }.needs(), ControlRight::Look);
        let mode = Some(standfast_transport::protection::ProtectionMode::MaximumPerformance);
        assert_eq!(Request::ProtectionMode { mode }.needs(), ControlRight::Administer);
    }

    #[test]
    fn unix_socket_peer_is_identified_as_this_user() {
        let (one, _other) = UnixStream::pair().unwrap();
        // SAFETY: has no preconditions.
        assert_eq!(Peer::of(&one).unwrap().uid, unsafe { libc::geteuid() });
        assert!(Administrators::of_this_process().has(Peer::of(&one).unwrap()));
    }
}
