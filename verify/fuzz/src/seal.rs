//! Repairs checksums and lengths, so that a mutated input passes the first checks and reaches the decoder.

use standfast_format::{FILE_HEADER_BYTES, FRAME_HEADER_BYTES, StreamCrc, crc32c};

fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

/// Turns bytes into adjacent complete transport frames; a remainder that is too short for a frame stays.
pub fn frames(bytes: &mut [u8]) {
    let mut at = 0;
    while bytes.len() - at >= FRAME_HEADER_BYTES {
        let frame = &mut bytes[at..];
        frame[..4].copy_from_slice(b"SFT1");
        let payload = (u32_at(frame, 8) as usize).min(frame.len() - FRAME_HEADER_BYTES);
        put_u32(frame, 8, payload as u32);
        let length = FRAME_HEADER_BYTES + payload;
        let crc = crc32c(&frame[8..length]);
        put_u32(frame, 4, crc);
        at += length;
    }
}

/// Turns bytes into adjacent complete redo records.
pub fn records(bytes: &mut [u8]) {
    let mut at = 0;
    while bytes.len() - at >= 8 {
        let record = &mut bytes[at..];
        let asked = u32_at(record, 4) as usize & 0xff_ffff;
        let length = asked.clamp(8, record.len().min(standfast_types::RECORD_BYTES_MAX));
        let kind = record[7];
        put_u32(record, 4, length as u32);
        record[7] = kind;
        let crc = crc32c(&record[4..length]);
        put_u32(record, 0, crc);
        at += length;
    }
}

/// Writes the magic, version and checksum of a file header into the first block of a log file.
pub fn file_header(bytes: &mut [u8]) {
    if bytes.len() < FILE_HEADER_BYTES {
        return;
    }
    bytes[..8].copy_from_slice(b"SFREDO01");
    put_u32(bytes, 8, standfast_format::FILE_VERSION);
    put_u32(bytes, 12, 512);
    bytes[16] = 1 + bytes[16] % 3;
    let crc = crc32c(&bytes[..508]);
    put_u32(bytes, 508, crc);
}

/// Writes the checksum of one block.
pub fn block(block: &mut [u8]) {
    if block.len() >= 48 {
        let crc = crc32c(&block[4..]);
        put_u32(block, 0, crc);
    }
}

/// Makes a log file of 512-byte blocks. Each block gets the number of its place and continues where the one before
/// ends, except for blocks with the flag of a cut. The payload stays.
pub fn log_file(bytes: &mut [u8]) {
    file_header(bytes);
    if bytes.len() < FILE_HEADER_BYTES {
        return;
    }
    let (header, blocks) = bytes.split_at_mut(FILE_HEADER_BYTES);
    let (mut position, mut crc) = (u64_at(header, 64), StreamCrc(u32_at(header, 96)));
    let sequence = u64_at(header, 56);
    for (index, block) in blocks.chunks_exact_mut(512).enumerate() {
        put_u32(block, 4, index as u32 + 1);
        block[8..16].copy_from_slice(&sequence.to_le_bytes());
        let cuts = block[44] & 1 == 1;
        if !cuts {
            block[16..24].copy_from_slice(&position.to_le_bytes());
            put_u32(block, 24, crc.0);
        }
        let payload = usize::from(u16::from_le_bytes([block[28], block[29]])) % (512 - 48 + 1);
        block[28..30].copy_from_slice(&(payload as u16).to_le_bytes());
        block[40..44].copy_from_slice(&header[48..52]);
        self::block(block);
        position = u64_at(block, 16).wrapping_add(payload as u64);
        crc = StreamCrc(u32_at(block, 24)).after(&block[48..48 + payload]);
    }
}

/// Writes the checksum of every fact of an apply journal, and the header of the file.
pub fn journal(bytes: &mut [u8]) {
    const HEADER_BYTES: usize = 4096;
    if bytes.len() < HEADER_BYTES {
        return;
    }
    bytes[..8].copy_from_slice(b"SFAPPLYJ");
    put_u32(bytes, 8, 1);
    let crc = crc32c(&bytes[..12]);
    put_u32(bytes, 12, crc);
    for fact in bytes[HEADER_BYTES..].chunks_exact_mut(32) {
        let crc = crc32c(&fact[4..]);
        put_u32(fact, 0, crc);
    }
}

/// Adds the first line of a control file.
pub fn control(body: &[u8]) -> Vec<u8> {
    let mut text = format!("standfast-control 1 {:08x}\n", crc32c(body)).into_bytes();
    text.extend_from_slice(body);
    text
}
