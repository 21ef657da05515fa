//! Text with markup. Text that is not part of this program's source is always escaped; there is no way around it. Pure.

use std::fmt::Display;

/// A well-formed part of a page.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Markup(String);

/// Escapes characters that have a meaning in a page. Replaces characters that a page must not contain: control
/// characters, and those that change the direction of the following text (a file name could look like another one).
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' => out.push('\n'),
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{fffe}' | '\u{ffff}' => {
                out.push('\u{fffd}');
            }
            other if other.is_control() => out.push('\u{fffd}'),
            other => out.push(other),
        }
    }
    out
}

impl Markup {
    pub fn new() -> Markup {
        Markup::default()
    }

    /// Appends markup from this program's source.
    pub fn raw(mut self, marks: &'static str) -> Markup {
        self.0.push_str(marks);
        self
    }

    pub fn text(mut self, text: impl Display) -> Markup {
        self.0.push_str(&escaped(&text.to_string()));
        self
    }

    pub fn then(mut self, other: Markup) -> Markup {
        self.0.push_str(&other.0);
        self
    }

    pub fn all(self, others: impl IntoIterator<Item = Markup>) -> Markup {
        others.into_iter().fold(self, Markup::then)
    }

    /// Appends `<name ...>content</name>`; attributes without a value are omitted.
    pub fn element(self, name: &'static str, attributes: &[(&'static str, &str)], content: Markup) -> Markup {
        let marks = self.open(name, attributes);
        Markup(marks.0 + ">").then(content).raw("</").raw(name).raw(">")
    }

    pub fn empty(self, name: &'static str, attributes: &[(&'static str, &str)]) -> Markup {
        self.open(name, attributes).raw(" />")
    }

    pub fn leaf(self, name: &'static str, text: impl Display) -> Markup {
        self.element(name, &[], Markup::new().text(text))
    }

    fn open(self, name: &'static str, attributes: &[(&'static str, &str)]) -> Markup {
        let given = attributes.iter().filter(|(_, value)| !value.is_empty());
        given.fold(self.raw("<").raw(name), |marks, (name, value)| {
            marks.raw(" ").raw(name).raw("=\"").text(value).raw("\"")
        })
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn into_string(self) -> String {
        self.0
    }
}

/// Returns untrusted text as a part of a page.
pub fn text(text: impl Display) -> Markup {
    Markup::new().text(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_text_is_escaped_in_markup() {
        let hostile = "</td><script>alert('1' & \"2\")</script>\u{0}\u{1b}[31m\u{202e}";
        let marks =
            Markup::new().element("td", &[("title", hostile), ("id", "")], text(hostile)).into_string();
        let inside = "&lt;/td&gt;&lt;script&gt;alert(&#39;1&#39; &amp; &quot;2&quot;)&lt;/script&gt;\
            \u{fffd}\u{fffd}[31m\u{fffd}";
        assert_eq!(marks, format!("<td title=\"{inside}\">{inside}</td>"));
    }
}
