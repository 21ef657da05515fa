//! Who may do what, as the destination of an open stream was told; and whether it may still receive redo itself.

use super::Shared;
use super::current::Ended;
use crate::channel::encode;
use crate::error::RefuseCode;
use crate::link::LinkEnd;
use crate::rights::MemberRights;
use standfast_format::FrameKind;

/// Of one stream.
pub(super) struct Listing {
    stream: LinkEnd,
    /// [`crate::RedoSource::rights_version`] that was looked at.
    version: u64,
    said: Vec<MemberRights>,
    /// The other end takes a list over the stream.
    takes: bool,
}

impl Listing {
    /// Of a stream that has begun with the list `said`.
    pub fn new(stream: LinkEnd, said: Vec<MemberRights>, takes: bool) -> Listing {
        // None that a source has: what changed since this connection was begun counts, too.
        Listing { stream, version: u64::MAX, said, takes }
    }

    /// Says what has changed. Returns why the stream has to end: the destination may not have redo any more, or hears of the
    /// list only by another stream.
    pub fn look(&mut self, shared: &Shared) -> Option<Ended> {
        let version = shared.source.rights_version();
        if version == self.version {
            return None;
        }
        self.version = version;
        // What else stands against a stream is seen where it is brought about.
        let objection = shared.source.objection(&shared.config.destination.name);
        if let Some(refusal) = objection.filter(|refusal| refusal.code == RefuseCode::NotAllowed) {
            // Its alert log should say it, too; it does not matter if it cannot be told.
            let told = encode(FrameKind::Refuse, 0, &refusal);
            let _ = told.map(|frame| shared.send_beside(&self.stream, &frame));
            return Some(Ended::Refused(refusal));
        }
        // Who listens on plain TCP could be anybody.
        if !self.stream.is_tls() {
            return None;
        }
        let members = shared.source.members();
        if members == self.said {
            return None;
        }
        self.said = members;
        let frame = if self.takes { encode(FrameKind::Members, 0, &self.said) } else { None };
        let Some(frame) = frame else {
            return Some(Ended::Anew(
                "the list of members has changed: the stream begins anew with it".into(),
            ));
        };
        // When it cannot be sent the stream is dead, which its own threads see.
        let _ = shared.send_beside(&self.stream, &frame);
        None
    }
}
