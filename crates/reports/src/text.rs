//! Sections as text of at most 80 columns, without colour. Pure.

use crate::rules::Finding;
use crate::section::{Section, Table};

pub const WIDTH: usize = 80;
/// A column of words is not made narrower.
const WORDS_MIN: usize = 12;

pub fn text(title: &str, sections: &[Section]) -> String {
    let mut out = format!("{title}\n{}\n", "=".repeat(title.chars().count().min(WIDTH)));
    for section in sections {
        out.push_str(&format!("\n{}\n{}\n", section.title, "-".repeat(section.title.chars().count())));
        for note in &section.notes {
            out.push_str(&wrapped(note, "", ""));
        }
        for found in &section.findings {
            out.push_str(&finding(found));
        }
        let widest = section.facts.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
        for (name, value) in &section.facts {
            let indent = " ".repeat(widest + 2);
            out.push_str(&wrapped(value, &format!("{name:<widest$}  "), &indent));
        }
        out.push_str(&section.table.as_ref().map_or_else(String::new, table));
    }
    out
}

/// Renders a finding: title, evidence, remedy, refutation.
pub fn finding(found: &Finding) -> String {
    let mut out = wrapped(&found.title, &format!("{} {}: ", found.severity.word(), found.rule), "    ");
    for evidence in &found.evidence {
        out.push_str(&wrapped(&evidence.to_string(), "    - ", "      "));
    }
    out.push_str(&wrapped(&found.remedy, "    do: ", "        "));
    out.push_str(&wrapped(&found.refuted_by, "    Ignore if: ", "        "));
    out
}

/// Wraps text to the width; `first` precedes the first line, `others` the following ones.
fn wrapped(text: &str, first: &str, others: &str) -> String {
    let mut out = String::new();
    let mut line = first.to_owned();
    let mut is_empty = true;
    for word in text.split_whitespace() {
        if !is_empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
            out.push_str(line.trim_end());
            out.push('\n');
            (line, is_empty) = (others.to_owned(), true);
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(word);
        is_empty = false;
    }
    out.push_str(line.trim_end());
    out.push('\n');
    out
}

fn table(table: &Table) -> String {
    let widths = widths(table);
    let heads: Vec<String> = table.columns.iter().map(|column| column.name.to_owned()).collect();
    let row = |cells: &Vec<String>| {
        let cells = cells.iter().zip(&widths).zip(&table.columns).map(|((cell, width), column)| {
            let cell = clipped(cell, *width);
            if column.numeric { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
        });
        format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    std::iter::once(&heads).chain(&table.rows).map(row).collect()
}

/// Column widths that fit the cells; if the table is too wide, columns of words shrink, the widest first.
fn widths(table: &Table) -> Vec<usize> {
    let cell = |row: &Vec<String>, index: usize| row.get(index).map_or(0, |cell| cell.chars().count());
    let column = |(index, column): (usize, &crate::section::Column)| {
        let cells = table.rows.iter().map(|row| cell(row, index));
        cells.max().unwrap_or(0).max(column.name.chars().count())
    };
    let mut widths: Vec<usize> = table.columns.iter().enumerate().map(column).collect();
    loop {
        let all = widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1);
        let words = widths.iter_mut().zip(&table.columns).filter(|(_, column)| !column.numeric);
        let Some(widest) = words.map(|(width, _)| width).max() else { return widths };
        if all <= WIDTH || *widest <= WORDS_MIN {
            return widths;
        }
        *widest = (*widest).saturating_sub(all - WIDTH).max(WORDS_MIN);
    }
}

/// Truncates a cell to `width`; a tilde marks the cut.
fn clipped(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['~']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::section::{left, right};

    #[test]
    fn tables_fit_the_width_by_truncating_text_not_numbers() {
        let long = "a name that is much longer than the line is wide, so that something has to give way";
        let shown = table(&Table {
            columns: vec![left("what"), left("class"), right("time")],
            rows: vec![vec![long.into(), "Configuration".into(), "123,456,789.000".into()]],
        });
        assert!(shown.lines().all(|line| line.chars().count() <= WIDTH), "{shown}");
        assert!(shown.contains("~  Configuration  123,456,789.000"), "{shown}");
    }

    #[test]
    fn sentences_are_wrapped_between_words() {
        let shown = wrapped(&"word ".repeat(40), "do: ", "    ");
        assert!(shown.lines().all(|line| line.chars().count() <= WIDTH), "{shown}");
        assert_eq!(shown.split_whitespace().filter(|word| *word == "word").count(), 40);
    }
}
