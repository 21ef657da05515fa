//! A proxy between primary and standby that injects faults: it forwards whole frames and, on request, damages,
//! duplicates or reorders them, holds all traffic, or closes one end without informing the other.

use crate::{During, Result};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Bytes of a frame header, which contains the length and kind of the payload; `docs/protocol.md` draws it.
const HEADER_BYTES: usize = 48;
const MAGIC: &[u8] = b"SFT1";
/// Frame kinds that are tampered with: redo, confirm, switch, acknowledgement. Others pass unchanged, so that a stream
/// can begin.
const STREAM_KINDS: std::ops::RangeInclusive<u16> = 2..=5;
const LOOK: Duration = Duration::from_millis(20);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    There,
    Back,
}

/// What is done to a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trick {
    /// One bit is flipped: the bit with this number modulo the number of bits.
    Corrupt(u64),
    Duplicate,
    /// It is sent after the next one.
    Reorder,
}

/// Closes its connections and ends on drop.
pub struct Proxy {
    /// Address to which the primary connects.
    pub address: String,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    struck: AtomicU64,
    over: AtomicBool,
}

#[derive(Default)]
struct State {
    held_up: bool,
    tricks: VecDeque<(Way, Trick)>,
    connections: Vec<Connection>,
}

struct Connection {
    primary: TcpStream,
    standby: TcpStream,
    /// One end was closed and the other was not informed.
    half_open: Arc<AtomicBool>,
}

impl Proxy {
    /// Starts a proxy in front of the standby at `standby`.
    ///
    /// # Errors
    /// When there is no port or thread.
    pub fn start(standby: &str) -> Result<Proxy> {
        let during = || "start a proxy".to_owned();
        let listener = TcpListener::bind(("127.0.0.1", 0)).during(during)?;
        let address = listener.local_addr().during(during)?.to_string();
        let shared = Arc::new(Shared::default());
        let (serving, standby) = (Arc::clone(&shared), standby.to_owned());
        let thread = std::thread::Builder::new().name("proxy".into());
        // Not joined: the connection that the drop makes wakes it for the last time.
        thread.spawn(move || serving.serve(&listener, &standby)).during(during)?;
        Ok(Proxy { address, shared })
    }

    /// Holds all traffic including new connections (`true`), like a pulled cable, or lets it continue.
    pub fn hold_up(&self, held_up: bool) {
        self.shared.lock().held_up = held_up;
        self.shared.changed.notify_all();
    }

    /// Closes all connections at both ends.
    pub fn reset(&self) {
        for connection in std::mem::take(&mut self.shared.lock().connections) {
            let _ = connection.primary.shutdown(Shutdown::Both);
            let _ = connection.standby.shutdown(Shutdown::Both);
        }
    }

    /// Closes one end of all present connections without informing the other.
    pub fn lose_end(&self, of_standby: bool) {
        for connection in &self.shared.lock().connections {
            connection.half_open.store(true, SeqCst);
            let lost = if of_standby { &connection.standby } else { &connection.primary };
            let _ = lost.shutdown(Shutdown::Both);
        }
    }

    /// Applies `trick` to the next frame of a stream in that direction.
    pub fn arm(&self, way: Way, trick: Trick) {
        self.shared.lock().tricks.push_back((way, trick));
    }

    /// Number of frames that were tampered with.
    pub fn struck(&self) -> u64 {
        self.shared.struck.load(SeqCst)
    }

    /// Drops the tricks that were not applied yet.
    pub fn disarm(&self) {
        self.shared.lock().tricks.clear();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.over.store(true, SeqCst);
        self.hold_up(false);
        self.reset();
        let _ = TcpStream::connect(&self.address);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until traffic is not held.
    fn pass(&self) {
        let state = self.changed.wait_while(self.lock(), |state| state.held_up);
        drop(state.unwrap_or_else(PoisonError::into_inner));
    }

    fn serve(self: &Arc<Self>, listener: &TcpListener, standby: &str) {
        while let Ok((primary, _)) = listener.accept() {
            if self.over.load(SeqCst) {
                return;
            }
            let (shared, standby) = (Arc::clone(self), standby.to_owned());
            std::thread::spawn(move || {
                shared.pass();
                // When the standby does not listen, the primary's connection is closed.
                let Ok(far) = TcpStream::connect(&standby) else { return };
                shared.connect(primary, far);
            });
        }
    }

    fn connect(self: &Arc<Self>, primary: TcpStream, standby: TcpStream) {
        let _ = primary.set_nodelay(true).and_then(|()| standby.set_nodelay(true));
        let half_open = Arc::new(AtomicBool::new(false));
        let clones = || Ok::<_, std::io::Error>((primary.try_clone()?, standby.try_clone()?));
        let (Ok(there), Ok(back), Ok(kept)) = (clones(), clones(), clones()) else { return };
        let ways = [(Way::There, there.0, there.1), (Way::Back, back.1, back.0)];
        for (way, from, to) in ways {
            let (shared, half_open) = (Arc::clone(self), Arc::clone(&half_open));
            std::thread::spawn(move || shared.pump(way, from, to, &half_open));
        }
        self.lock().connections.push(Connection { primary: kept.0, standby: kept.1, half_open });
    }

    fn pump(&self, way: Way, mut from: TcpStream, mut to: TcpStream, half_open: &AtomicBool) {
        let (mut buffer, mut held) = (Vec::new(), None::<Vec<u8>>);
        let mut chunk = vec![0; 64 << 10];
        let _ = from.set_read_timeout(Some(LOOK));
        'pump: loop {
            match from.read(&mut chunk) {
                Ok(0) => break,
                Ok(bytes) => buffer.extend_from_slice(&chunk[..bytes]),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => continue,
                Err(_) => break,
            }
            self.pass();
            while let Some(length) = frame_length(&buffer) {
                let mut frame: Vec<u8> = buffer.drain(..length).collect();
                let trick = self.trick_for(way, &frame);
                let sent = match (trick, held.take()) {
                    (Some(Trick::Reorder), None) => {
                        held = Some(frame);
                        Ok(())
                    }
                    (trick, before) => {
                        if let Some(Trick::Corrupt(at)) = trick {
                            let bit = at % (frame.len() as u64 * 8);
                            frame[(bit / 8) as usize] ^= 1 << (bit % 8);
                        }
                        let twice = trick == Some(Trick::Duplicate);
                        let after = before.unwrap_or_default();
                        to.write_all(&frame)
                            .and_then(|()| to.write_all(if twice { &frame } else { &[] }))
                            .and_then(|()| to.write_all(&after))
                    }
                };
                if sent.is_err() {
                    break 'pump;
                }
            }
        }
        if !half_open.load(SeqCst) {
            let _ = to.shutdown(Shutdown::Both);
            let _ = from.shutdown(Shutdown::Both);
        }
    }

    fn trick_for(&self, way: Way, frame: &[u8]) -> Option<Trick> {
        let kind = u16::from_le_bytes([frame[12], frame[13]]);
        if !frame.starts_with(MAGIC) || !STREAM_KINDS.contains(&kind) {
            return None;
        }
        let mut state = self.lock();
        let next = state.tricks.iter().position(|(for_way, _)| *for_way == way)?;
        self.struck.fetch_add(1, SeqCst);
        state.tricks.remove(next).map(|(_, trick)| trick)
    }
}

/// Returns the length of the frame at the begin of `bytes`, once it is complete. Bytes that are not a frame pass
/// unchanged.
fn frame_length(bytes: &[u8]) -> Option<usize> {
    if bytes.len() < HEADER_BYTES {
        return None;
    }
    if !bytes.starts_with(MAGIC) {
        return Some(bytes.len());
    }
    let length = HEADER_BYTES + u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]) as usize;
    (bytes.len() >= length).then_some(length)
}
