//! Names and texts sent by a peer, made printable when they are decoded.

use serde::{Deserialize, Deserializer};
use standfast_types::{FOREIGN_NAME_MAX, FOREIGN_TEXT_MAX, printable, printable_line};

/// Most instance names in one message.
const NAMES_MAX: usize = 256;

/// Deserialises a name sent by a peer and makes it printable. Nothing that comes over a connection reaches a log, a
/// terminal or a file in another form. Valid names stay unchanged.
pub(crate) fn foreign_name<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    String::deserialize(from).map(|name| printable(&name, FOREIGN_NAME_MAX))
}

/// [`foreign_name`] for several names, at most as many as a family can have.
pub(crate) fn foreign_names<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    let names = Vec::<String>::deserialize(from)?;
    Ok(names.iter().take(NAMES_MAX).map(|name| printable(name, FOREIGN_NAME_MAX)).collect())
}

/// [`foreign_name`] for a text, whose remedy may be on a separate line.
pub(crate) fn foreign_text<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    String::deserialize(from).map(|text| one_line(&text))
}

/// Makes a text of a peer one printable line, for logs and terminals.
pub(crate) fn one_line(text: &str) -> String {
    printable_line(text, 2 * FOREIGN_TEXT_MAX)
}
