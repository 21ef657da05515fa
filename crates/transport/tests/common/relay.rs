//! A relay to a standby whose connections break.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// Passes the first connection, and cuts some later ones after a number of bytes.
pub struct Relay {
    address: SocketAddr,
    cut: Arc<AtomicU64>,
}

impl Relay {
    /// Each of the next `times` connections after the first is cut when `after` bytes have passed towards `target`.
    pub fn cutting(target: SocketAddr, after: u64, times: u64) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let cut = Arc::new(AtomicU64::new(0));
        let counted = cut.clone();
        // Not joined: it waits for connections until the test process ends.
        std::thread::spawn(move || {
            for (number, near) in (0..).zip(listener.incoming()) {
                let (near, Ok(far)) = (near.unwrap(), TcpStream::connect(target)) else { continue };
                let limit = if (1..=times).contains(&number) { after } else { u64::MAX };
                let back = (far.try_clone().unwrap(), near.try_clone().unwrap());
                let counted = counted.clone();
                std::thread::spawn(move || {
                    if pass(near, far, limit) {
                        counted.fetch_add(1, SeqCst);
                    }
                });
                std::thread::spawn(move || pass(back.0, back.1, u64::MAX));
            }
        });
        Relay { address, cut }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Number of connections cut.
    pub fn cut(&self) -> u64 {
        self.cut.load(SeqCst)
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, mut limit: u64) -> bool {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let read = from.read(&mut buffer).unwrap_or(0);
        let passed = (read as u64).min(limit) as usize;
        let written = to.write_all(&buffer[..passed]).is_ok();
        limit -= passed as u64;
        if read == 0 || !written || limit == 0 {
            let _ = from.shutdown(Shutdown::Both);
            let _ = to.shutdown(Shutdown::Both);
            return limit == 0;
        }
    }
}
