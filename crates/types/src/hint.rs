//! Hints: what an operator can do about an error.
//!
//! The `Display` of an error says what failed and why. What to do about it is its [`Hint`]. Both together are written in
//! two forms: on two lines for a terminal, and in one line for the alert log and for reasons that are stored or sent to
//! another instance. Only this module knows how the two parts are put together and taken apart.

use std::borrow::Cow;
use std::fmt::Display;

const ON_A_TERMINAL: &str = "\nhint: ";
const IN_ONE_LINE: &str = " | hint: ";
const IN_A_SENTENCE: &str = "; ";

/// An error whose text does not contain its remedy.
pub trait Hint: Display {
    /// Returns what to do about the error; `None` when there is nothing to do, or nothing is known.
    fn hint(&self) -> Option<Cow<'_, str>>;

    /// Returns the error and, on a line of its own, its hint.
    fn for_terminal(&self) -> String {
        for_terminal(self, self.hint().as_deref())
    }

    /// Returns the error and its hint as a part of a sentence, for the text of an error with a hint of its own.
    fn as_a_reason(&self) -> String {
        joined(self, IN_A_SENTENCE, self.hint().as_deref())
    }

    /// Returns the error and its hint in one line.
    fn in_one_line(&self) -> String {
        in_one_line(self, self.hint().as_deref())
    }
}

/// Writes a text and its hint on a line each.
pub fn for_terminal(what: impl Display, hint: Option<&str>) -> String {
    joined(what, ON_A_TERMINAL, hint)
}

/// Writes a text and its hint in one line.
pub fn in_one_line(what: impl Display, hint: Option<&str>) -> String {
    joined(what, IN_ONE_LINE, hint)
}

/// An error as text with its hint, for an error that passes through a type that knows neither.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hinted {
    what: String,
    hint: Option<String>,
}

impl Hinted {
    pub fn of(error: &impl Hint) -> Hinted {
        Hinted { what: error.to_string(), hint: error.hint().map(Cow::into_owned) }
    }
}

impl Hint for Hinted {
    fn hint(&self) -> Option<Cow<'_, str>> {
        self.hint.as_deref().map(Cow::Borrowed)
    }
}

impl Display for Hinted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Hinted {}

fn joined(what: impl Display, mark: &str, hint: Option<&str>) -> String {
    hint.map_or_else(|| what.to_string(), |hint| format!("{what}{mark}{hint}"))
}

/// Separates a text in one of the two forms from its hint.
pub fn split(text: &str) -> (&str, Option<&str>) {
    let cut = |mark| text.split_once(mark);
    let first =
        [cut(ON_A_TERMINAL), cut(IN_ONE_LINE)].into_iter().flatten().min_by_key(|(what, _)| what.len());
    first.map_or((text, None), |(what, hint)| (what, Some(hint)))
}

/// Returns a text in one of the two forms with its hint on a line that begins with `indent`.
pub fn lines(text: &str, indent: &str) -> String {
    let (what, hint) = split(text);
    hint.map_or_else(|| what.to_owned(), |hint| format!("{what}\n{indent}hint: {hint}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_taken_apart_where_they_were_put_together() {
        for hint in [Some("make room"), None] {
            for text in [for_terminal("disk full", hint), in_one_line("disk full", hint)] {
                assert_eq!(split(&text), ("disk full", hint), "{text}");
                assert_eq!(lines(&text, ""), for_terminal("disk full", hint));
            }
        }
        assert_eq!(in_one_line("disk full", Some("make room")), "disk full | hint: make room");
        assert_eq!(for_terminal("disk full", Some("make room")), "disk full\nhint: make room");
        assert_eq!(lines("disk full | hint: make room", "  "), "disk full\n  hint: make room");
    }

    #[test]
    fn text_is_split_at_its_first_hint() {
        assert_eq!(split("a | hint: b\nhint: c"), ("a", Some("b\nhint: c")));
        assert_eq!(split("a\nhint: b | hint: c"), ("a", Some("b | hint: c")));
    }
}
