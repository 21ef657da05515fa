//! Requests of any client of the HTTP server: the head, the decision about it, and the head of the answer.

use standfast_instance::observe::http::request::{Access, Answer, Decision, HEAD_BYTES_MAX, Parsed, parse};

/// A head is held as bytes, as its relevant parts, and in an answer.
const FACTOR: usize = 32;

pub fn run(data: &[u8]) -> usize {
    let head = &data[..data.len().min(HEAD_BYTES_MAX)];
    let Parsed::Whole(request) = parse(head) else { return FACTOR };
    let token = Access::Token("0123456789abcdef".into());
    for access in [Access::Local, token] {
        let decision = access.decide(&request);
        if decision == Decision::Remember {
            let answer = Answer::remember(&request).bytes(true);
            let end = answer.windows(4).position(|window| window == b"\r\n\r\n");
            let lines = end.map(|end| answer[..end].split(|byte| *byte == b'\n').count());
            assert_eq!(lines, Some(11), "a request adds no header to its answer");
        }
    }
    FACTOR
}
