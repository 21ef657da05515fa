//! The current connection of a sender, and the segment counts of the ones before.

use super::ack_stream::AckStream;
use super::failure::Ended;
use crate::framing::FrameReader;
use crate::link::LinkEnd;
use crate::rights::MemberRights;
use crate::sys::Segments;

/// The reading side of a connection, for the ack reader.
pub(super) struct AckSide {
    pub(super) reader: FrameReader<LinkEnd>,
    pub(super) acks: AckStream,
    /// The members as the handshake reported them to the destination.
    pub(super) listed: Vec<MemberRights>,
    /// The destination accepts a changed list over the stream.
    pub(super) takes_lists: bool,
    /// The destination keeps the shared configuration.
    pub(super) takes_configuration: bool,
}

/// The connection as the two threads share it: the feeder makes it and sets `reader`; the ack reader takes `reader`,
/// and clears `stream` when it has finished with the connection.
#[derive(Default)]
pub(super) struct Current {
    pub(super) stream: Option<LinkEnd>,
    pub(super) reader: Option<AckSide>,
    /// Why this end closed the connection.
    pub(super) reason: Option<Ended>,
    /// Segments sent over the connections before this one.
    segments_before: Segments,
}

impl Current {
    /// Ends the connection for both threads.
    pub(super) fn end(&mut self) {
        self.segments_before = self.segments();
        self.stream = None;
    }

    /// Returns the segments sent over this connection and the ones before.
    pub(super) fn segments(&self) -> Segments {
        let now = self.stream.as_ref().map(|stream| stream.segments());
        self.segments_before + now.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::Link;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn segment_counts_continue_across_connections() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut current = Current::default();
        for round in 1..=2 {
            let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (mut far, _) = listener.accept().unwrap();
            near.set_nodelay(true).unwrap();
            current.stream = Some(Link::plain(near));
            for _ in 0..3 {
                current.stream.as_mut().unwrap().write_all(&[1]).unwrap();
                far.read_exact(&mut [0]).unwrap();
            }
            // The other end may be gone before this one.
            drop(far);
            assert_eq!(current.segments(), Segments { sent: 3 * round, resent: 0 });
            current.end();
            assert_eq!(current.segments(), Segments { sent: 3 * round, resent: 0 });
        }
    }
}
