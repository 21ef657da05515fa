//! Text of files, processes and other hosts, as a terminal may get it.

/// Escapes what an error quotes (a path, the text of another host), so that it cannot control the terminal.
pub fn printable_lines(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(|line| standfast_types::printable(line, usize::MAX)).collect();
    lines.join("\n")
}
