//! Names in the form of the screens. Pure.

use crate::limit::Limit;
use crate::plan::{Direction, Directions};
use standfast_page::units::readable_size;

/// Formats a socket buffer as it was requested.
pub fn window_name(window: u32) -> String {
    if window == 0 { "auto".into() } else { readable_size(window.into()) }
}

/// Names what limited a run; a dash when unknown.
pub fn limit_name(limit: Option<Limit>) -> String {
    limit.map_or_else(|| "-".into(), |limit| limit.to_string())
}

/// Says what a limit of a direction means, and what would help.
pub fn limit_meaning(limit: Limit, direction: Direction) -> String {
    let (sender, receiver) = ends(direction);
    match limit {
        Limit::ReceiverWindow => format!(
            "the {receiver}'s receive buffer was full of data in flight; a larger buffer at the {receiver} helps"
        ),
        Limit::SendBuffer => format!(
            "the {sender}'s send buffer was full of what was not yet acknowledged; a larger buffer at the {sender} helps"
        ),
        Limit::Path => {
            "nothing at the ends held it back: bandwidth, distance or loss did; bandwidth helps, or fewer \
            retransmissions, or more bytes a message when each one is waited for"
                .into()
        }
        Limit::Application => {
            "the programs or processors at the ends, or a rate or pause that was asked for; faster \
            hosts or more connections help"
                .into()
        }
        Limit::Disk => format!(
            "the {receiver} spent at least half of the time in durable writes; a faster disk helps, or FASTSYNC"
        ),
    }
}

/// Returns the names of sender and receiver.
pub fn ends(direction: Direction) -> (&'static str, &'static str) {
    match direction {
        Direction::ToServer => ("client", "server"),
        Direction::FromServer => ("server", "client"),
    }
}

/// Describes a direction in a sentence.
pub fn who_sends(direction: Direction) -> String {
    let (sender, receiver) = ends(direction);
    format!("{}: the {sender} sends, the {receiver} receives", direction.name())
}

/// Adds the direction to a title.
pub fn directed(title: &str, direction: Direction) -> String {
    format!("{title}, {}", direction.name())
}

/// Returns the preposition before the server's name.
pub fn to_or_from(directions: Directions) -> &'static str {
    match directions {
        Directions::ToServer => "to",
        Directions::FromServer => "from",
        Directions::Both => "to and from",
    }
}

pub fn directions_name(directions: Directions) -> String {
    let names: Vec<&str> = directions.all().iter().map(|direction| direction.name()).collect();
    names.join(" and ")
}
