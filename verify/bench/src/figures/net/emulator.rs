//! Accuracy of the emulator itself, measured with plain sockets.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use serde::Serialize;
use standfast_wan::settings::Settings;

use super::lab::{FAR, Lab, Labs, NEAR, ample_buffer, carries, deep_queue, emulated, link, round_trip};
use super::{apart, worst};
use crate::error::During;
use crate::statistics::MinMedianMax;
use crate::{BenchError, Result, interrupt};

const PORT: u16 = 7000;
/// Bytes per write or read of a stream.
const WRITE_BYTES: usize = 256 << 10;
/// Datagrams that go there and back.
const DATAGRAMS: usize = 41;
/// Limit that nothing on these links reaches.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Time for a stream to reach its full speed.
const RAMP_UP: Duration = Duration::from_secs(1);
/// A run with later packets (seconds) measures the machine instead of the emulator.
const LATE: f64 = 1e-3;
/// Streams over the link without limits; the best one shows the capacity of the emulator.
const ATTEMPTS: usize = 3;

#[derive(Debug, Serialize)]
pub struct Exactness {
    /// Median round trip of datagrams over 25 ms, seconds.
    pub round_trip: f64,
    pub true_round_trip: f64,
    /// Payload of a stream over 1 Gbit/s and 25 ms, bytes per second.
    pub rate: f64,
    pub true_rate: f64,
    /// Payload of a stream over a link without delay and limit, bytes per second.
    pub unlimited: f64,
    pub unlimited_attempts: Vec<f64>,
}

impl Exactness {
    /// The larger of the two differences at 1 Gbit/s and 25 ms, in percent.
    pub(super) fn percent_apart(&self) -> f64 {
        worst([apart(self.round_trip, self.true_round_trip), apart(self.rate, self.true_rate)])
    }
}

pub(super) fn exactness(labs: &Labs<'_>) -> Result<Exactness> {
    eprintln!("the emulator by plain sockets");
    let mut settings = link(25.0, 1000.0);
    settings.queue = deep_queue(&settings);
    let lab = labs.open(settings)?;
    lab.set_ceilings(ample_buffer(&settings))?;
    let round_trip_found = lab.on_time(LATE, || datagrams(&lab))?.value;
    let rate = lab.on_time(LATE, || stream(&lab, labs.context.measure))?.value;
    drop(lab);
    let lab = labs.open(Settings::default())?;
    let attempts = || stream(&lab, labs.context.measure / 2);
    let unlimited_attempts = (0..ATTEMPTS).map(|_| attempts()).collect::<Result<Vec<f64>>>()?;
    let found = Exactness {
        round_trip: round_trip_found,
        true_round_trip: round_trip(&settings),
        rate,
        true_rate: carries(&settings),
        unlimited: unlimited_attempts.iter().copied().fold(0.0, f64::max),
        unlimited_attempts,
    };
    eprintln!("emulator: {found:?}");
    Ok(found)
}

/// Median round trip of datagrams, in seconds.
fn datagrams(lab: &Lab<'_>) -> Result<f64> {
    let wan = lab.wan();
    let (near, far) = (emulated(wan.node(NEAR))?.address, emulated(wan.node(FAR))?.address);
    let open = |node: &str, own, other| {
        let made = wan.within(node, || {
            let socket = UdpSocket::bind((own, PORT))?;
            socket.connect((other, PORT))?;
            socket.set_read_timeout(Some(TIMEOUT)).map(|()| socket)
        });
        emulated(made)?.during(|| format!("open a socket in node {node}"))
    };
    let (here, there) = (open(NEAR, near, far)?, open(FAR, far, near)?);
    let times = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut bytes = [0; 64];
            for _ in 0..DATAGRAMS {
                // On an error here, the other side runs into its timeout and reports that.
                let Ok(length) = there.recv(&mut bytes) else { return };
                let _ = there.send(&bytes[..length]);
            }
        });
        let one = |_| {
            let began = Instant::now();
            here.send(&[7; 64]).and_then(|_| here.recv(&mut [0; 64])).map(|_| began.elapsed().as_secs_f64())
        };
        (0..DATAGRAMS).map(one).collect::<std::io::Result<Vec<f64>>>()
    });
    let times = times.during(|| "send a datagram there and back".into())?;
    interrupt::check()?;
    MinMedianMax::of(times).map(|of| of.median).ok_or_else(|| BenchError::Workload("no datagram".into()))
}

/// Payload bytes per second of one connection, as its receiver counts them.
fn stream(lab: &Lab<'_>, time: Duration) -> Result<f64> {
    let wan = lab.wan();
    let address = (emulated(wan.node(FAR))?.address, PORT);
    let listener = emulated(wan.within(FAR, || TcpListener::bind(address)))?.during(|| "listen".into())?;
    let sender = emulated(wan.within(NEAR, || TcpStream::connect(address)))?.during(|| "connect".into())?;
    let receiver = listener.accept().during(|| "accept".into())?.0;
    let rate = std::thread::scope(|scope| {
        let bytes = vec![7; WRITE_BYTES];
        // Ends with an error when the receiver closes its end.
        scope.spawn(move || while (&sender).write_all(&bytes).is_ok() {});
        received(receiver, time)
    });
    interrupt::check()?;
    rate.during(|| "receive a stream".into())
}

fn received(mut receiver: TcpStream, time: Duration) -> std::io::Result<f64> {
    let mut room = vec![0; WRITE_BYTES];
    let mut take_for = |time: Duration| {
        let (began, mut bytes) = (Instant::now(), 0);
        while began.elapsed() < time {
            bytes += receiver.read(&mut room)?;
        }
        Ok::<f64, std::io::Error>(bytes as f64 / began.elapsed().as_secs_f64())
    };
    take_for(RAMP_UP)?;
    take_for(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worse_of_round_trip_and_rate_counts() {
        let exact = Exactness {
            round_trip: 0.0252,
            true_round_trip: 0.025,
            rate: 99.0,
            true_rate: 100.0,
            unlimited: 1e9,
            unlimited_attempts: vec![1e9],
        };
        assert!((exact.percent_apart() - 1.0).abs() < 1e-9);
        let slow = Exactness { rate: 95.0, ..exact };
        assert!((slow.percent_apart() - 5.0).abs() < 1e-9);
    }
}
