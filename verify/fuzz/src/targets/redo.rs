//! Redo as bytes: records, page vectors, ranges, blocks, file headers.

use super::chosen;
use crate::seal;
use standfast_format::{
    LogFileHeader, Ranges, Record, apply_ranges, decode_block, decode_record, encode_ranges, peek_length,
};

/// The largest page size of SQLite.
const PAGE_BYTES: usize = 65_536;

/// An input is copied in order to repair it.
const FACTOR: usize = 16;

pub fn run(data: &[u8]) -> usize {
    chosen(data, FACTOR, decode)
}

fn decode(choice: u8, rest: &[u8]) {
    match choice % 7 {
        0 => records(rest),
        1 => records(&sealed(rest, seal::records)),
        2 => ranges(rest),
        3 => there_and_back(rest),
        4 => blocks(rest),
        5 => blocks(&sealed(rest, |bytes| bytes.chunks_mut(512).for_each(seal::block))),
        _ => file_header(&sealed(rest, seal::file_header)),
    }
}

fn sealed(bytes: &[u8], seal: fn(&mut [u8])) -> Vec<u8> {
    let mut sealed = bytes.to_vec();
    seal(&mut sealed);
    sealed
}

fn records(mut bytes: &[u8]) {
    loop {
        let peeked = peek_length(bytes);
        let Ok((record, length)) = decode_record(bytes) else { return };
        assert_eq!(peeked, Ok(length), "the length in the header is that of the record");
        if let Record::Change { vectors, .. } | Record::Commit { vectors, .. } = record {
            for vector in vectors {
                let Ok(vector) = vector else { break };
                assert_ne!(vector.page_no, 0);
                ranges(vector.ranges);
            }
        }
        bytes = &bytes[length..];
    }
}

/// Valid ranges fit the largest page, and applying them to a smaller page fails or stays inside it.
fn ranges(bytes: &[u8]) {
    let mut end = 0;
    for range in Ranges::new(bytes) {
        let Ok((start, bytes)) = range else { break };
        assert!(start >= end && !bytes.is_empty() && start + bytes.len() <= PAGE_BYTES);
        end = start + bytes.len();
    }
    let mut page = [0; 4096];
    let _ = apply_ranges(bytes, &mut page);
}

/// Applying the difference of two pages to the first one gives the second.
fn there_and_back(bytes: &[u8]) {
    let (before, after) = bytes.split_at(bytes.len() / 2);
    let after = &after[..before.len()];
    let mut encoded = Vec::new();
    encode_ranges(before, after, &mut encoded);
    let mut page = before.to_vec();
    let applied = apply_ranges(&encoded, &mut page);
    assert!(before.len() > PAGE_BYTES || applied.is_ok() && page == after, "{applied:?}");
}

fn blocks(bytes: &[u8]) {
    for block in bytes.chunks(512).chain([bytes]) {
        if let Ok(header) = decode_block(block) {
            assert!(usize::from(header.payload_bytes) <= block.len());
            let _ = header.end();
        }
    }
}

fn file_header(bytes: &[u8]) {
    let Ok(header) = LogFileHeader::decode(bytes) else { return };
    let mut again = vec![0; header.block_bytes as usize];
    header.encode(&mut again);
    assert_eq!(LogFileHeader::decode(&again), Ok(header));
}
