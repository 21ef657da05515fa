//! A plot as SVG inside the page: lines over two axes. Pure.
//!
//! The plot does not rely on colour: every line has its own dashes and marks, and a legend in words.

use crate::markup::{Markup, text};
use crate::scale::Axis;

#[derive(Clone, Debug)]
pub struct Plot {
    /// Unique in its page; a single word.
    pub id: String,
    pub title: String,
    /// What the plot shows, as a sentence for readers who do not see it.
    pub description: String,
    pub x: Axis,
    pub y: Axis,
    pub series: Vec<Series>,
    pub rules: Vec<Rule>,
    pub events: Option<Events>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    pub name: String,
    pub points: Vec<(f64, f64)>,
    /// Each point is marked; unset for steps, whose corners are not measured points.
    pub marked: bool,
}

/// A line across the plot at a value.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    pub name: String,
    pub value: f64,
    /// The value is on the x axis (a vertical line), not on the y axis.
    pub upright: bool,
}

/// Factor by which an axis must exceed a horizontal rule, so that the rule's name has room above it.
pub const ROOM: f64 = 1.12;

/// Counts of an event along the x axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Events {
    pub name: String,
    /// (x, count); zeros are not drawn.
    pub points: Vec<(f64, u64)>,
}

/// Sizes of a drawing, in CSS pixels.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// CSS class of the drawing: the style sheet shows it where it fits.
    pub class: &'static str,
    pub width: f64,
    pub height: f64,
}

pub const WIDE: Size = Size { class: "wide", width: 720.0, height: 220.0 };
/// For phones: letters keep their size.
pub const NARROW: Size = Size { class: "narrow", width: 344.0, height: 190.0 };

/// Width of a letter, estimated generously: the reader's browser chooses the font.
const LETTER: f64 = 6.8;
/// Height of a line of text.
const LINE: f64 = 18.0;
/// Height of the strip of events.
const STRIP: f64 = 34.0;
/// A line with more points than this has no marks.
const MOST_MARKS: usize = 48;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Frame {
    pub left: f64,
    pub right: f64,
    pub top: f64,
    pub bottom: f64,
}

impl Frame {
    fn x(&self, share: f64) -> f64 {
        self.left + share * (self.right - self.left)
    }

    fn y(&self, share: f64) -> f64 {
        self.bottom - share * (self.bottom - self.top)
    }
}

fn width_of(text: &str) -> f64 {
    text.chars().count() as f64 * LETTER
}

fn pixels(value: f64) -> String {
    format!("{value:.1}")
}

fn line(class: &str, from: (f64, f64), to: (f64, f64)) -> Markup {
    let [x1, y1, x2, y2] = [from.0, from.1, to.0, to.1].map(pixels);
    Markup::new().empty("line", &[("class", class), ("x1", &x1), ("y1", &y1), ("x2", &x2), ("y2", &y2)])
}

/// Draws a text; `anchor` is start, middle or end.
fn label(class: &str, anchor: &str, at: (f64, f64), words: &str) -> Markup {
    let (x, y) = (pixels(at.0), pixels(at.1));
    Markup::new().element(
        "text",
        &[("class", class), ("text-anchor", anchor), ("x", &x), ("y", &y)],
        text(words),
    )
}

/// Draws the mark of series `number` around a point.
fn mark(number: usize, (x, y): (f64, f64)) -> Markup {
    let shape = match number % 3 {
        0 => format!("M{:.1} {y:.1}a3 3 0 1 0 6 0a3 3 0 1 0 -6 0z", x - 3.0),
        1 => format!("M{:.1} {:.1}h6v6h-6z", x - 3.0, y - 3.0),
        _ => format!("M{x:.1} {:.1}l4 7h-8z", y - 4.0),
    };
    Markup::new().empty("path", &[("class", &format!("mark m{}", number % 3)), ("d", &shape)])
}

impl Plot {
    /// Returns both sizes; the style sheet shows one of them.
    pub fn drawings(&self) -> Markup {
        self.drawing(WIDE).then(self.drawing(NARROW))
    }

    /// Returns the drawing in one size.
    pub fn drawing(&self, size: Size) -> Markup {
        let (legend, legend_height) = self.legend(size);
        let frame = self.frame(size, legend_height);
        let strip = if self.events.is_some() { STRIP + LINE } else { 0.0 };
        let height = frame.bottom + strip + 2.2 * LINE;
        let (title, description) =
            (format!("{}-{}-t", self.id, size.class), format!("{}-{}-d", self.id, size.class));
        let content = Markup::new()
            .element("title", &[("id", &title)], text(&self.title))
            .element("desc", &[("id", &description)], text(&self.description))
            .then(legend)
            .then(self.axes(frame, strip))
            .then(self.events.as_ref().map_or_else(Markup::new, |events| self.strip(events, frame)))
            .all(self.series.iter().enumerate().map(|(number, series)| self.line(number, series, frame)))
            .all(self.rules.iter().enumerate().map(|(number, rule)| self.rule(number, rule, frame)));
        let viewed = format!("0 0 {:.0} {height:.0}", size.width);
        let labelled = format!("{title} {description}");
        let (class, width) = (format!("plot {}", size.class), pixels(size.width));
        Markup::new().element(
            "svg",
            &[
                ("class", &class),
                ("viewBox", &viewed),
                ("width", &width),
                ("height", &pixels(height)),
                ("role", "img"),
                ("aria-labelledby", &labelled),
            ],
            content,
        )
    }

    /// Returns the area between the axes, below a legend of this height.
    pub fn frame(&self, size: Size, legend: f64) -> Frame {
        let widest = self.y.ticks().map(|(_, name)| width_of(name)).fold(0.0, f64::max);
        let top = legend + 1.6 * LINE;
        Frame {
            left: (widest + 12.0).min(size.width / 3.0),
            right: size.width - 14.0,
            top,
            bottom: top + size.height,
        }
    }

    /// Returns the positions of a series' points within a frame.
    pub fn places(&self, series: &Series, frame: Frame) -> Vec<(f64, f64)> {
        series
            .points
            .iter()
            .filter(|(x, y)| self.x.shows(*x) && self.y.shows(*y))
            .map(|(x, y)| (frame.x(self.x.place(*x)), frame.y(self.y.place(*y))))
            .collect()
    }

    /// Returns the names of the lines, in as many rows as they need, and their height; empty for a single line.
    fn legend(&self, size: Size) -> (Markup, f64) {
        let (mut marks, mut x, mut y) = (Markup::new(), 4.0, LINE * 0.7);
        if self.series.len() < 2 {
            return (marks, 0.0);
        }
        for (number, series) in self.series.iter().enumerate() {
            let wide = 34.0 + width_of(&series.name) + 14.0;
            if x > 4.0 && x + wide > size.width {
                (x, y) = (4.0, y + LINE);
            }
            let class = format!("line s{}", number % 3);
            marks = marks
                .then(line(&class, (x, y - 4.0), (x + 28.0, y - 4.0)))
                .then(if series.marked { mark(number, (x + 14.0, y - 4.0)) } else { Markup::new() })
                .then(label("name", "start", (x + 34.0, y), &series.name));
            x += wide;
        }
        (marks, y + LINE * 0.3)
    }

    fn axes(&self, frame: Frame, strip: f64) -> Markup {
        let mut marks = label("unit", "start", (2.0, frame.top - 10.0), &self.y.label);
        for (place, name) in self.y.ticks() {
            let y = frame.y(place);
            marks = marks.then(line("grid", (frame.left, y), (frame.right, y))).then(label(
                "tick",
                "end",
                (frame.left - 6.0, y + 4.0),
                name,
            ));
        }
        let below = frame.bottom + strip;
        let mut free = 0.0;
        for (place, name) in self.x.ticks() {
            let (x, half) = (frame.x(place), width_of(name) / 2.0);
            marks = marks.then(line("axis", (x, below), (x, below + 4.0)));
            // Names never touch, and never leave the drawing.
            let middle = x.clamp(half, (frame.right + 12.0 - half).max(half));
            if middle - half >= free {
                marks = marks.then(label("tick", "middle", (middle, below + LINE), name));
                free = middle + half + LETTER;
            }
        }
        marks.then(line("axis", (frame.left, below), (frame.right, below))).then(label(
            "unit",
            "end",
            (frame.right, below + 1.9 * LINE),
            &self.x.label,
        ))
    }

    fn line(&self, number: usize, series: &Series, frame: Frame) -> Markup {
        let places = self.places(series, frame);
        let path: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let class = format!("line s{}", number % 3);
        let drawn = Markup::new().empty("polyline", &[("class", &class), ("points", &path.join(" "))]);
        let marks = places.into_iter().filter(|_| series.marked && series.points.len() <= MOST_MARKS);
        drawn.all(marks.map(|place| mark(number, place)))
    }

    /// Draws a rule. Names of horizontal rules are alternately at the right and the left end, so that two close ones
    /// stay readable.
    fn rule(&self, number: usize, rule: &Rule, frame: Frame) -> Markup {
        if rule.upright {
            // The name is above the plot, beside the unit, where no line is.
            let (x, half) = (frame.x(self.x.place(rule.value)), width_of(&rule.name) / 2.0);
            let least = width_of(&self.y.label) + 10.0 + half;
            let middle = x.max(least).min(frame.right - half).max(half);
            return line("rule", (x, frame.top - 6.0), (x, frame.bottom)).then(label(
                "name",
                "middle",
                (middle, frame.top - 10.0),
                &rule.name,
            ));
        }
        let y = frame.y(self.y.place(rule.value));
        let above = if y - frame.top < LINE { y + LINE - 4.0 } else { y - 5.0 };
        let (anchor, x) =
            if number.is_multiple_of(2) { ("end", frame.right - 2.0) } else { ("start", frame.left + 4.0) };
        line("rule", (frame.left, y), (frame.right, y)).then(label("name", anchor, (x, above), &rule.name))
    }

    fn strip(&self, events: &Events, frame: Frame) -> Markup {
        let (top, bottom) = (frame.bottom + LINE, frame.bottom + LINE + STRIP);
        let most = events.points.iter().map(|(_, count)| *count).max().unwrap_or(0).max(1);
        let bars =
            events.points.iter().filter(|(x, count)| *count > 0 && self.x.shows(*x)).map(|(x, count)| {
                let x = frame.x(self.x.place(*x));
                let high = (*count as f64 / most as f64 * (STRIP - 2.0)).max(3.0);
                line("event", (x, bottom), (x, bottom - high))
            });
        label("unit", "start", (frame.left, top - 4.0), &format!("{} (highest bar: {most})", events.name))
            .all(bars)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scale::plain;
    use proptest::prelude::*;

    fn plot(points: Vec<(f64, f64)>, logarithmic: bool) -> Plot {
        let values = || points.iter().map(|(_, y)| *y);
        let y = match logarithmic {
            true => Axis::logarithmic("ms", values(), 6, plain),
            false => Axis::from_zero("MiB/s", values(), 5),
        };
        Plot {
            id: "p".into(),
            title: "A < B".into(),
            description: "both".into(),
            x: Axis::from_zero("seconds", points.iter().map(|(x, _)| *x), 8),
            y,
            rules: vec![
                Rule {
                    name: "level".into(),
                    value: points.first().map_or(0.0, |point| point.1),
                    upright: false,
                },
                Rule {
                    name: "upright".into(),
                    value: points.first().map_or(0.0, |point| point.0),
                    upright: true,
                },
            ],
            events: Some(Events {
                name: "again".into(),
                points: points.iter().map(|(x, _)| (*x, 7)).collect(),
            }),
            series: vec![
                Series { name: "one".into(), points: points.clone(), marked: true },
                Series { name: "two".into(), points, marked: false },
            ],
        }
    }

    /// Returns every number of the attributes that are coordinates.
    fn coordinates(drawing: &str) -> Vec<f64> {
        let coordinate = |name: &str| ["x", "y", "x1", "y1", "x2", "y2", "points"].contains(&name);
        drawing
            .split(['<', ' '])
            .collect::<Vec<_>>()
            .join(" ")
            .split('"')
            .collect::<Vec<_>>()
            .chunks(2)
            .filter(|pair| {
                pair.len() == 2 && coordinate(pair[0].trim_end_matches('=').rsplit(' ').next().unwrap_or(""))
            })
            .flat_map(|pair| pair[1].split([' ', ',']))
            .map(|number| number.parse().unwrap_or(f64::NAN))
            .collect()
    }

    #[test]
    fn plot_line_passes_through_its_values() {
        let drawn = plot(vec![(0.0, 0.0), (10.0, 50.0), (20.0, 100.0)], false);
        let frame = Frame { left: 50.0, right: 250.0, top: 20.0, bottom: 120.0 };
        assert_eq!(drawn.places(&drawn.series[0], frame), [(50.0, 120.0), (150.0, 70.0), (250.0, 20.0)]);
        let svg = drawn.drawing(WIDE).into_string();
        assert!(svg.contains("<title id=\"p-wide-t\">A &lt; B</title>"), "{svg}");
        // Two lines, and on one of them three marks besides that of the legend.
        assert_eq!((svg.matches("<polyline").count(), svg.matches("<path").count()), (2, 4));
        assert_eq!(svg.matches("class=\"event\"").count(), 3);
    }

    proptest! {
        #[test]
        fn every_measured_point_is_drawn_inside_the_frame(
            points in prop::collection::vec((any::<f64>(), any::<f64>()), 0..80),
            logarithmic: bool
        ) {
            for size in [WIDE, NARROW] {
                let drawn = plot(points.clone(), logarithmic);
                let frame = drawn.frame(size, 20.0);
                for (x, y) in drawn.places(&drawn.series[0], frame) {
                    prop_assert!((frame.left..=frame.right).contains(&x), "{x} {frame:?}");
                    prop_assert!((frame.top..=frame.bottom).contains(&y), "{y} {frame:?}");
                }
                let svg = drawn.drawing(size).into_string();
                let all = coordinates(&svg);
                prop_assert!(all.len() >= 20, "{svg}");
                prop_assert!(all.iter().all(|number| (0.0..=size.width).contains(number)), "{svg}");
            }
        }
    }
}
