//! What the destination of an open stream is told beside the redo: the rights of members, and the configuration that all
//! instances share. Also whether that destination may still receive redo.

use super::failure::Ended;
use super::shared::Shared;
use crate::channel::encode;
use crate::error::RefuseCode;
use crate::link::LinkEnd;
use crate::rights::MemberRights;
use standfast_format::FrameKind;

pub(super) struct Listing {
    stream: LinkEnd,
    /// [`crate::RedoSource::rights_version`] at the last check.
    version: u64,
    reported: Vec<MemberRights>,
    /// The other end accepts a list over the stream.
    takes: bool,
}

impl Listing {
    /// For a stream that began with the list `reported`.
    pub fn new(stream: LinkEnd, reported: Vec<MemberRights>, takes: bool) -> Listing {
        // No source has this version: changes since the connection began are found too.
        Listing { stream, version: u64::MAX, reported, takes }
    }

    /// Sends the list if it has changed. Returns why the stream must end: the destination has lost the right to receive
    /// redo, or accepts the list only with a new stream.
    pub fn look(&mut self, shared: &Shared) -> Option<Ended> {
        let version = shared.source.rights_version();
        if version == self.version {
            return None;
        }
        self.version = version;
        // Any other objection is handled where it arises.
        let objection = shared.source.objection(&shared.config.destination.name);
        if let Some(refusal) = objection.filter(|refusal| refusal.code == RefuseCode::NotAllowed) {
            // The destination's alert log should show it too; a failed send does not matter.
            let stated = encode(FrameKind::Refuse, 0, &refusal);
            let _ = stated.map(|frame| shared.send_beside(&self.stream, &frame));
            return Some(Ended::Refused(refusal));
        }
        // A plain TCP listener is not authenticated and is sent no member names.
        if !self.stream.is_tls() {
            return None;
        }
        let members = shared.source.members();
        if members == self.reported {
            return None;
        }
        self.reported = members;
        let frame = if self.takes { encode(FrameKind::Members, 0, &self.reported) } else { None };
        let Some(frame) = frame else {
            return Some(Ended::Restart(
                "the list of members has changed: the stream begins again with it".into(),
            ));
        };
        // If it cannot be sent, the stream is dead, and its own threads find that out.
        let _ = shared.send_beside(&self.stream, &frame);
        None
    }
}

/// The shared configuration as sent over an open stream.
pub(super) struct SentConfiguration {
    stream: LinkEnd,
    /// [`crate::RedoSource::configuration_version`] of what was sent last.
    version: Option<u64>,
}

impl SentConfiguration {
    pub fn new(stream: LinkEnd) -> SentConfiguration {
        SentConfiguration { stream, version: None }
    }

    /// Sends the configuration if it has changed.
    pub fn look(&mut self, shared: &Shared) {
        let version = shared.source.configuration_version();
        if self.version.replace(version) == Some(version) {
            return;
        }
        // One that does not fit into a frame is not sent: the destination keeps what it has.
        let configuration = shared.source.configuration();
        if let Some(frame) = configuration.and_then(|all| encode(FrameKind::Configuration, 0, &all)) {
            // If it cannot be sent, the stream is dead, and its own threads find that out.
            let _ = shared.send_beside(&self.stream, &frame);
        }
    }
}
