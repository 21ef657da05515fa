//! Requests of a local program to the control socket: one line of JSON each.

use standfast_instance::server::request::Request;

/// A request is held as text, as values and as text of an error.
const FACTOR: usize = 64;

pub fn run(data: &[u8]) -> usize {
    // Like the socket, read up to the first line end, and only if it is text.
    let line = data.split(|byte| *byte == b'\n').next().unwrap_or_default();
    if let Ok(text) = std::str::from_utf8(line)
        && let Ok(request) = serde_json::from_str::<Request>(text)
    {
        let again =
            serde_json::to_string(&request).map(|text| serde_json::from_str::<Request>(&text).is_ok());
        assert!(again.is_ok_and(|again| again), "what is accepted can be written and read again");
    }
    FACTOR
}
