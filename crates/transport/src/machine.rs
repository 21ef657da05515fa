//! Both ends of a stream as machines without threads, sockets or clock. The threads of [`crate::Sender`] and
//! [`crate::Receiver`] run them over TCP; a simulation runs the same ones over a pipe in memory and a clock of its own.

pub use crate::ack::FrameSink;
pub use crate::clock::{Clock, SystemClock};
pub use crate::receiver::{
    Agreement, GapBefore, Outgoing, Proved, ReceiverStream, StreamSite, may_take, meets,
};
pub use crate::sender::{AckStream, Agreed, Ended, Failure, Greeting, Offered, SenderCore, Step, answer_in};
pub use crate::wire::{Outlet, Wire};
