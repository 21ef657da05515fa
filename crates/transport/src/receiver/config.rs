//! The settings of a receiver.

use super::admission::Limits;
use crate::link::Security;
use std::time::Duration;

#[derive(Clone, Debug)]
pub struct ReceiverConfig {
    /// HOST:PORT to listen on; port 0 selects any free one.
    pub listen: String,
    pub security: Security,
    /// Delay of every acknowledgement, to emulate a distant standby on one machine. Normally zero.
    pub ack_delay: Duration,
    /// A handshake or request must be complete within this time.
    pub handshake_timeout: Duration,
    /// Connections at a time; further ones are closed immediately.
    pub connections_max: usize,
    /// SDU: largest payload of a frame accepted; 0 = as large as the protocol allows.
    pub sdu_bytes: u32,
    pub limits: Limits,
}

impl Default for ReceiverConfig {
    fn default() -> Self {
        ReceiverConfig {
            listen: "127.0.0.1:7450".into(),
            security: Security::default(),
            ack_delay: Duration::ZERO,
            handshake_timeout: Duration::from_secs(5),
            connections_max: 256,
            sdu_bytes: 0,
            limits: Limits::default(),
        }
    }
}
