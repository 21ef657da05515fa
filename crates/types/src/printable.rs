//! Text of foreign origin on its way into a message: one line, of bounded length, without anything that a terminal, a
//! log collector or a reader would take for more than text.

/// Longest text of a peer, a client or an application within a message, in characters.
pub const FOREIGN_TEXT_MAX: usize = 500;
/// Longest name within a message, in characters; allowed names have at most 64.
pub const FOREIGN_NAME_MAX: usize = 80;

/// Returns whether a character is shown as its escape: controls, and characters that are invisible or reverse the
/// direction of what follows, with which a line seems to say something else.
fn is_escaped(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{ad}'
                | '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}

/// Space for the note at the end of a truncated text.
const CUT_NOTE_CHARS: usize = 40;

/// Returns `text` with escapes for what is not plain text, in at most `chars_max` characters (80 or more). A truncated
/// text says how much is missing. A second call leaves the result of the first unchanged.
pub fn printable(text: &str, chars_max: usize) -> String {
    let width = |character: char| if is_escaped(character) { character.escape_default().count() } else { 1 };
    let (mut written, mut end, mut fits) = (0, 0, true);
    for (at, character) in text.char_indices() {
        written += width(character);
        if written <= chars_max.saturating_sub(CUT_NOTE_CHARS) {
            end = at + character.len_utf8();
        }
        if written > chars_max {
            fits = false;
            break;
        }
    }
    let (kept, rest) = if fits { (text, "") } else { text.split_at(end) };
    let mut out = String::with_capacity(kept.len());
    for character in kept.chars() {
        if is_escaped(character) { out.extend(character.escape_default()) } else { out.push(character) }
    }
    if !fits {
        out.push_str(&format!("... ({} characters omitted)", rest.chars().count()));
    }
    out
}

/// Applies [`printable`] to a text whose lines are to stand on one.
pub fn printable_line(text: &str, chars_max: usize) -> String {
    printable(&text.replace('\n', " | "), chars_max)
}

/// Applies [`printable`] to bytes that should be UTF-8; invalid bytes become replacement characters.
pub fn printable_bytes(bytes: &[u8], chars_max: usize) -> String {
    // A character has at most four bytes: the truncated rest is not even decoded.
    let few = &bytes[..bytes.len().min(chars_max.saturating_mul(4).saturating_add(4))];
    printable(&String::from_utf8_lossy(few), chars_max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_of_any_language_stays_as_it_is() {
        for text in ["", "oslo-2", "/srv/Büro/データ.db", "a \\ b | hint: c"] {
            assert_eq!(printable(text, 100), text);
        }
    }

    #[test]
    fn control_and_direction_characters_are_shown_as_escapes() {
        assert_eq!(printable("a\nb\r\tc", 100), r"a\nb\r\tc");
        assert_eq!(printable("\x1b[2J\x07\x7f\u{9b}31m", 100), r"\u{1b}[2J\u{7}\u{7f}\u{9b}31m");
        assert_eq!(
            printable("\u{202e}gpj.exe\u{2066}\u{200b}\u{2028}", 100),
            r"\u{202e}gpj.exe\u{2066}\u{200b}\u{2028}"
        );
        assert_eq!(printable_bytes(b"a\xff\x1bb", 100), "a\u{fffd}\\u{1b}b");
    }

    #[test]
    fn long_text_is_truncated_with_a_note() {
        let cut = printable(&"x".repeat(101), 100);
        assert_eq!(cut, format!("{}... (41 characters omitted)", "x".repeat(60)));
        assert_eq!(printable(&cut, 100), cut, "nothing is cut twice");
        assert_eq!(printable(&"x".repeat(100), 100), "x".repeat(100));
        // No escape is cut in two.
        assert!(printable(&"\x1b".repeat(50), 100).starts_with(&r"\u{1b}".repeat(10)));
        assert!(printable(&"\x1b".repeat(50_000), FOREIGN_NAME_MAX).len() <= FOREIGN_NAME_MAX);
        assert!(printable_bytes(&[0xff; 50_000], FOREIGN_NAME_MAX).chars().count() <= FOREIGN_NAME_MAX);
    }
}
