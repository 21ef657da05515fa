//! Ten thousand connections that say nothing. The only test of this program, because it measures the memory of the
//! process.

#![allow(clippy::unwrap_used)]

mod common;

use common::{Running, test};
use standfast_net::lobby::PLACES;
use standfast_net::plan::Plan;
use standfast_net::socket::allow_descriptors;
use standfast_net::units::Extent;
use std::net::TcpStream;
use std::time::Duration;

const CONNECTIONS: usize = 10_000;

/// Returns the resident memory of this process, bytes.
fn resident() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

/// Returns the number of descriptors of this process.
fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn idle_connections_neither_fill_memory_nor_block_a_client() {
    allow_descriptors(CONNECTIONS + 2 * PLACES).unwrap();
    let server = Running::start("many-connections");
    let real = Plan {
        length: 1000,
        duration: Extent::Time(Duration::from_millis(200)),
        timeout: Some(Duration::from_secs(30)),
        ..Plan::default()
    };
    assert!(test(&server, &real).error.is_none());
    let before = resident();
    let mut silent: Vec<TcpStream> = Vec::new();
    for number in 0..CONNECTIONS {
        match TcpStream::connect_timeout(&server.address(), Duration::from_secs(30)) {
            Ok(socket) => silent.push(socket),
            // A host that allows a process fewer descriptors shows the same with fewer connections.
            Err(error) if error.raw_os_error() == Some(24) && number > 2 * PLACES => break,
            Err(error) => panic!("connection {number}: {error}"),
        }
        if number % 2500 == 2499 {
            assert!(test(&server, &real).error.is_none(), "beside {number}");
        }
    }
    let room = silent.len().min(CONNECTIONS - 100);
    silent.truncate(room);
    assert!(test(&server, &real).error.is_none());
    // Only connections in the lobby have a second end in this process.
    assert!(descriptors() < silent.len() + PLACES + 100, "{}", descriptors());
    let grown = resident().saturating_sub(before);
    assert!(grown < 16 << 20, "{grown} bytes more with {} connections", silent.len());
    println!("{} silent connections, {} KiB more memory", silent.len(), grown >> 10);
}
