//! Parts that all pages have: the head, the style, tables, figures.

use crate::markup::{Markup, text};
use crate::plot::Plot;
use std::fmt::Display;

const STYLE: &str = include_str!("style.css");

pub struct Column {
    pub name: &'static str,
    pub numeric: bool,
}

pub fn words(name: &'static str) -> Column {
    Column { name, numeric: false }
}

pub fn numbers(name: &'static str) -> Column {
    Column { name, numeric: true }
}

/// Builds a page that begins with `mark`, from a title and sections.
pub fn document(mark: &str, title: &str, sections: Markup) -> String {
    whole(mark, title, Markup::new().leaf("h1", title).then(sections))
}

/// Builds a page that begins with `mark`, from the title of its window and its whole content.
pub fn whole(mark: &str, title: &str, main: Markup) -> String {
    let head = Markup::new()
        .raw("<meta charset=\"utf-8\" />\n")
        .raw("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\" />\n")
        // Even if injected markup reached the page, it would load nothing and run nothing.
        .raw("<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\" />\n")
        .leaf("title", title)
        .raw("\n<style>\n")
        .raw(STYLE)
        .raw("</style>");
    let body = Markup::new().element("main", &[], main);
    let content = Markup::new().element("head", &[], head).raw("\n").element("body", &[], body);
    let html = Markup::new().element("html", &[("lang", "en")], content);
    format!("{mark}{}\n", html.into_string())
}

/// Builds a section with its heading; empty when the content is empty.
pub fn section(title: &str, content: Markup) -> Markup {
    if content.is_empty() {
        return content;
    }
    Markup::new().raw("\n").element("section", &[], Markup::new().leaf("h2", title).then(content))
}

/// Builds a box with a word in front and more below; `class` is empty (good), `warn` or `fail`.
pub fn notice(class: &str, word: &str, line: Markup, more: Markup) -> Markup {
    let word = Markup::new().element("span", &[("class", "grade")], text(word));
    let line = Markup::new().element("p", &[], word.raw(" ").then(line));
    Markup::new().element("div", &[("class", format!("state {class}").trim_end())], line.then(more))
}

/// Builds a box of one line.
pub fn remark(class: &str, word: &str, printed: impl Display) -> Markup {
    notice(class, word, text(printed), Markup::new())
}

/// Builds a table of names and values.
pub fn facts<S: AsRef<str>>(rows: &[(S, String)]) -> Markup {
    let row = |(name, value): &(S, String)| {
        let head = Markup::new().element("th", &[("scope", "row")], text(name.as_ref()));
        Markup::new().element("tr", &[], head.leaf("td", value))
    };
    let body = Markup::new().element("tbody", &[], Markup::new().all(rows.iter().map(row)));
    Markup::new().element("table", &[("class", "facts")], body)
}

/// Builds a table that scrolls on a narrow screen; the first column names the row.
pub fn table(caption: &str, columns: &[Column], rows: impl Iterator<Item = Vec<String>>) -> Markup {
    let class =
        |number: usize| columns.get(number).map_or("", |column| if column.numeric { "n" } else { "" });
    let heads = columns.iter().enumerate().map(|(number, column)| {
        Markup::new().element("th", &[("scope", "col"), ("class", class(number))], text(column.name))
    });
    let cell = |(number, value): (usize, String)| match number {
        0 => Markup::new().element("th", &[("scope", "row"), ("class", class(0))], text(value)),
        _ => Markup::new().element("td", &[("class", class(number))], text(value)),
    };
    let row = |cells: Vec<String>| {
        let cells = Markup::new().all(cells.into_iter().enumerate().map(cell));
        Markup::new().element("tr", &[], cells).raw("\n")
    };
    let head = Markup::new().element("tr", &[], Markup::new().all(heads));
    let content =
        Markup::new().element("thead", &[], head).element("tbody", &[], Markup::new().all(rows.map(row)));
    let moved = [("class", "scroll"), ("role", "region"), ("aria-label", caption), ("tabindex", "0")];
    Markup::new().element("div", &moved, Markup::new().element("table", &[], content))
}

/// Builds a figure: a plot, a sentence about it, and the numbers behind it.
pub fn figure(plot: &Plot, numbers: Markup) -> Markup {
    let caption = text(&plot.title).leaf("p", &plot.description);
    let behind = Markup::new().leaf("summary", format!("Numbers: {}", plot.title)).then(numbers);
    let content = Markup::new().element("figcaption", &[], caption).then(plot.drawings()).element(
        "details",
        &[],
        behind,
    );
    Markup::new().raw("\n").element("figure", &[], content)
}

/// Builds a block of lines to be copied as they are.
pub fn copyable(title: &str, lines: &[String]) -> Markup {
    let attributes = [("tabindex", "0"), ("role", "region"), ("aria-label", title)];
    Markup::new().element("pre", &attributes, text(lines.join("\n")))
}

/// Builds a list; empty without items.
pub fn list(items: impl Iterator<Item = Markup>) -> Markup {
    let items: Vec<Markup> = items.map(|item| Markup::new().element("li", &[], item)).collect();
    if items.is_empty() { Markup::new() } else { Markup::new().element("ul", &[], Markup::new().all(items)) }
}
