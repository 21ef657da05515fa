//! Screens on a terminal of 80 columns and 24 lines, compared with files. STANDFAST_BLESS=1 rewrites the files.

#![allow(clippy::unwrap_used)]

use standfast_live::synthetic;
use standfast_top::screen::screen;
use standfast_top::view::{Key, View};
use std::path::Path;

fn compare(name: &str, view: &View, lost: Option<&str>) {
    let lines = screen(&synthetic::dashboard(), view, lost, 80, 24);
    assert!(lines.len() <= 24, "{name}: {} lines", lines.len());
    let text: String = lines.iter().map(|line| format!("{}\n", line.text.trim_end())).collect();
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/screens").join(name);
    if std::env::var_os("STANDFAST_BLESS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &text).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text, expected, "{name} differs; STANDFAST_BLESS=1 takes it as it is");
}

fn pressed(keys: &str) -> View {
    let mut view = View::default();
    keys.chars().for_each(|key| assert!(view.press(Key::Char(key))));
    view
}

#[test]
fn overview_of_all_parts_fits_on_one_screen() {
    compare("all.txt", &View::default(), None);
    assert_eq!(
        standfast_top::plain(&synthetic::dashboard(), 80, 24),
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/screens/all.txt")).unwrap()
    );
}

#[test]
fn each_part_has_its_own_screen() {
    for part in 1..=7 {
        compare(&format!("part-{part}.txt"), &pressed(&part.to_string()), None);
    }
}

#[test]
fn screen_states_help_filter_pause_and_stale_data() {
    compare("help.txt", &pressed("?"), None);
    compare("filter.txt", &pressed("p3/rome"), None);
    compare("old.txt", &View::default(), Some("9 s: the instance does not run"));
}

#[test]
fn a_small_terminal_shows_what_fits() {
    for (width, height) in [(1, 1), (20, 3), (40, 10)] {
        let lines = screen(&synthetic::dashboard(), &View::default(), None, width, height);
        assert!(lines.iter().all(|line| line.text.chars().count() <= width));
    }
}
