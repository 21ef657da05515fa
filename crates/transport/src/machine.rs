//! Both ends of a stream as machines without threads, sockets or clock. The threads of [`crate::Sender`] and
//! [`crate::Receiver`] run them over TCP; a simulation runs the same ones over a pipe in memory and a clock of its own.

pub use crate::ack::FrameSink;
pub use crate::clock::{Clock, SystemClock};
pub use crate::receiver::{
    Agreement, Fetch, FetchStep, FetchStream, GapBefore, Outgoing, Proved, ReceiverStream, StreamSite,
    archiver_answer, may_take, meets,
};
pub use crate::sender::{
    AckStream, Agreed, ArchiverStep, ArchiverStream, Ended, Failure, Greeting, Offered, OpenGap, SenderCore,
    Step, answer_in, archiver_hello,
};
pub use crate::wire::{Outlet, Wire};
