//! The conditions of a test: what was requested.

use super::words::directions_name;
use crate::plan::{Direction, Directions, Mode, Plan};
use crate::stream::Target;
use standfast_page::units::{Extent, classic_time};
use standfast_page::words::rate;

/// Returns the conditions of one test; `loaded` when round trips were measured beside it.
pub fn options(target: &Target, plan: &Plan, loaded: bool) -> Vec<(&'static str, String)> {
    let time =
        |time: std::time::Duration| if time.is_zero() { "none".to_owned() } else { classic_time(time) };
    let random = |random: bool| if random { " at most, drawn evenly" } else { "" };
    let yes = |yes: bool| if yes { "yes" } else { "no" }.to_owned();
    let mut stated = vec![
        ("direction", directions(plan.directions).to_owned()),
        ("mode", plan.mode.name().to_owned()),
        (writes(plan.directions), yes(plan.write)),
        ("message", format!("{} bytes{}", plan.length, random(plan.random_length))),
        ("payload", plan.payload.name().to_owned()),
        ("connections in each direction", plan.streams.to_string()),
        ("pause between messages", format!("{}{}", time(plan.delay), random(plan.random_delay))),
        ("rate in each direction", plan.rate.map_or_else(|| "as fast as it goes".into(), rate)),
        ("round trips beside the test", yes(loaded)),
        ("interval", time(plan.interval)),
        (
            "duration",
            match plan.duration {
                Extent::Endless => "until it is interrupted".into(),
                Extent::Time(duration) => classic_time(duration),
                Extent::Bytes(bytes) => format!("{bytes} bytes in each direction"),
            },
        ),
        ("begin that does not count", time(plan.omit)),
        ("given up without progress after", plan.timeout.map_or_else(|| "never".into(), classic_time)),
        access(target),
    ];
    if plan.write && plan.directions.has_reverse() {
        stated.insert(3, ("file of the client's durable writes", plan.file.display().to_string()));
    }
    if plan.mode == Mode::Async {
        stated.retain(|(name, _)| *name != "pause between messages" || !plan.delay.is_zero());
    }
    stated
}

/// Returns the conditions of a procedure of several tests: the options of its command, the directions, and how the
/// server was reached.
pub fn of_several(
    target: &Target,
    directions: Directions,
    stated: &[(&'static str, String)],
) -> Vec<(&'static str, String)> {
    let one_after_the_other = match directions {
        Directions::Both => format!("{}, one after the other", directions_name(directions)),
        _ => directions_name(directions),
    };
    let mut all = vec![("direction", one_after_the_other)];
    all.extend_from_slice(stated);
    all.push(access(target));
    all
}

fn directions(directions: Directions) -> &'static str {
    match directions {
        Directions::Both => "to server and from server at the same time, each on connections of its own",
        Directions::ToServer => Direction::ToServer.name(),
        Directions::FromServer => Direction::FromServer.name(),
    }
}

fn writes(directions: Directions) -> &'static str {
    match directions {
        Directions::ToServer => "durable write at the server",
        Directions::FromServer => "durable write at the client",
        Directions::Both => "durable write at both receivers",
    }
}

/// Returns whether there was a shared secret, never the secret.
fn access(target: &Target) -> (&'static str, String) {
    let printed = if target.key.is_some() { "proved by both sides" } else { "none" };
    ("shared secret", printed.to_owned())
}
