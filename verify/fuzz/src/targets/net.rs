//! The network test and the emulator: wire protocol, command lines, units, histories, packets, control.

use super::chosen;
use standfast_net::framer::Framer;
use standfast_net::tcptest::options;
use standfast_net::wire::{
    ANSWER_BYTES, Answer, HEADER_BYTES, HELLO_BYTES, Header, Hello, REPORT_BYTES, Report, STATE_BYTES,
    may_be_hello,
};
use standfast_net::{access, log_history, stats, units};
use standfast_wan::control;
use standfast_wan::packet::{Shape, VNET};
use standfast_wan::settings::Settings;

/// A text is held as words, as values and as text of an error.
const FACTOR: usize = 64;

pub fn run(data: &[u8]) -> usize {
    chosen(data, FACTOR, decode)
}

fn decode(choice: u8, rest: &[u8]) {
    match choice % 6 {
        0 => wire(rest),
        1 => framer(rest),
        2 => packet(rest),
        other => {
            let Ok(text) = std::str::from_utf8(rest) else { return };
            match other {
                3 => words(text),
                4 => drop(log_history::read(text).map(|history| history.peak.rate())),
                _ => emulator(text),
            }
        }
    }
}

fn wire(bytes: &[u8]) {
    let _ = may_be_hello(bytes);
    if let Some(Ok(hello)) = bytes.first_chunk::<HELLO_BYTES>().map(Hello::decode) {
        assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
    }
    if let Some(Ok(answer)) = bytes.first_chunk::<ANSWER_BYTES>().map(Answer::decode) {
        assert_eq!(Answer::decode(&answer.encode()), Ok(answer));
    }
    if let Some(Ok(header)) = bytes.first_chunk::<HEADER_BYTES>().map(|bytes| Header::decode(bytes, 1 << 20))
    {
        assert_eq!(Header::decode(&header.encode(), 1 << 20), Ok(header));
    }
    if let Some(Ok(report)) = bytes.first_chunk::<REPORT_BYTES>().map(Report::decode) {
        assert_eq!(Report::decode(&report.encode()), Ok(report));
    }
    if let Some(state) = bytes.first_chunk::<STATE_BYTES>() {
        let _ = stats::Sender::decode(state);
    }
}

/// A stream gives the same messages, however it is split.
fn framer(bytes: &[u8]) {
    let Some((step, bytes)) = bytes.split_first() else { return };
    let (mut whole, mut cut) = (Framer::new(1 << 20), Framer::new(1 << 20));
    let at_once = whole.feed(bytes);
    let in_chunks = bytes.chunks(usize::from(*step) + 1).try_for_each(|chunk| cut.feed(chunk));
    assert_eq!(at_once, in_chunks);
    assert_eq!((whole.messages, whole.payload, whole.finished), (cut.messages, cut.payload, cut.finished));
}

fn packet(bytes: &[u8]) {
    let Some(shape) = Shape::of(bytes) else { return };
    let segments = shape.segments();
    for train in [0..segments, 0..1, segments - 1..segments, 0..segments.div_ceil(2)] {
        let mut out = vec![0; shape.train_bytes(train.clone())];
        assert!(out.len() >= VNET && out.len() <= bytes.len());
        shape.cut_out(bytes, train, &mut out);
    }
    let _ = shape.segment_bytes(segments - 1);
}

fn words(text: &str) {
    // Skip these: an option that names a file would open it.
    let words: Vec<String> = text.split('\n').map(str::to_owned).collect();
    let names_file = |word: &String| {
        let word = word.to_ascii_lowercase();
        word.contains("file") || word.contains("payload") || word.contains('/')
    };
    if !words.iter().any(names_file) {
        let _ = options::parse(&words);
    }
    for word in &words {
        let _ = (units::size(word), units::time(word, "s"), units::extent(word), units::rate(word));
        let _ = units::ambiguous_extent(word);
        let _ = word.parse::<access::Network>().map(|network| network.contains([127, 0, 0, 1].into()));
    }
}

fn emulator(text: &str) {
    if let Ok(control::Request::Set { change, .. }) = serde_json::from_str(text)
        && let Ok(settings) = change.applied_to(&Settings::default())
    {
        let _ = (settings.queue_bytes(), settings.wire_time(1500), settings.carried_in(1_000_000));
    }
}
