//! Options of `standfast wan`.

use crate::emulator::LinkName;
use crate::settings::{Change, Nanos, Queue, Share, WHOLE};
use crate::wan::WanConfig;
use clap::{Args, Subcommand};
use standfast_page::units;
use std::os::fd::RawFd;

const RUN_EXAMPLES: &str = "\
Examples:
  standfast wan run lab --rtt 25ms --rate 1gbit
  standfast wan run --rtt 10ms --loss 0.1% --seed 7 -- ping -c 5 10.77.0.2
  standfast wan run lab --rtt 40ms --rate 100mbit --link b:a,rate=10mbit,loss=1%
  standfast wan run lab --nodes paris,oslo,rome --rtt 30ms --fail-late 1ms

The nodes have the addresses 10.77.0.1, 10.77.0.2 and so on. Needs root.
Exit codes: 0 ok, 1 failed, 2 usage, 3 released too late (--fail-late), 4 refused;
with a command its own, or 128 and the number of the signal that ended it.";

const SET_EXAMPLES: &str = "\
Examples:
  standfast wan set lab --rtt 100ms
  standfast wan set lab a:b --rate 10mbit --queue 50ms
  standfast wan set lab --rate none --loss 0%

Exit codes: 0 ok, 2 usage, 4 it does not run, or rights are missing.";

const CUT_EXAMPLES: &str = "\
Examples:
  standfast wan cut lab           nothing passes
  standfast wan cut lab a:b       a sends, b receives nothing
  standfast wan heal lab

Exit codes: 0 ok, 2 usage, 4 it does not run, or rights are missing.";

const STALL_EXAMPLES: &str = "\
Examples:
  standfast wan stall lab         time stands still everywhere
  standfast wan stall lab b:a     what b says waits, what a says arrives
  standfast wan heal lab          all of it arrives now

Exit codes: 0 ok, 2 usage, 4 it does not run, or rights are missing.";

const HEAL_EXAMPLES: &str = "\
Examples:
  standfast wan heal lab
  standfast wan heal lab a:b      the other direction stays as it is

Exit codes: 0 ok, 2 usage, 4 it does not run, or rights are missing.";

const STOP_EXAMPLES: &str = "\
Examples:
  standfast wan stop lab
  standfast wan stats lab --json > lab.json && standfast wan stop lab

Exit codes: 0 ok, 2 usage, 4 it does not run, or rights are missing.";

const LIST_EXAMPLES: &str = "\
Examples:
  standfast wan list
  standfast wan list | xargs -r -n 1 standfast wan stop

Exit codes: 0 ok, 4 rights are missing.";

const STATS_EXAMPLES: &str = "\
Examples:
  standfast wan stats lab
  standfast wan stats lab --json
  standfast wan stats lab --reset --fail-late 1ms

Exit codes: 0 ok, 2 usage, 3 released too late (--fail-late), 4 it does not run, or
rights are missing.";

const EXEC_EXAMPLES: &str = "\
Examples:
  standfast wan exec lab b -- standfast net server
  standfast wan exec lab a -- standfast net client 10.77.0.2 --length 0 --duration 10s

Exit codes: that of the command; 1 it cannot be run, 2 usage, 4 the emulator does not run,
or rights are missing.";

/// A WAN in a box: hosts on this machine with emulated links between them (root only).
#[derive(Debug, Subcommand)]
pub enum WanCommand {
    /// Emulate until it is stopped, or until a command in the first node ends
    #[command(after_help = RUN_EXAMPLES)]
    Run(Box<RunArgs>),
    /// Run a command in a node
    #[command(after_help = EXEC_EXAMPLES)]
    Exec(ExecArgs),
    /// Change links while they are in use; what is not named stays
    #[command(after_help = SET_EXAMPLES)]
    Set(SetArgs),
    /// Lose everything, including packets in flight
    #[command(after_help = CUT_EXAMPLES)]
    Cut(LinksArgs),
    /// Stop time on links: nothing arrives, and all of it when they are healed
    #[command(after_help = STALL_EXAMPLES)]
    Stall(LinksArgs),
    /// End cuts and stalls
    #[command(after_help = HEAL_EXAMPLES)]
    Heal(LinksArgs),
    /// What passed, what was dropped and why, and how exactly it was released
    #[command(after_help = STATS_EXAMPLES)]
    Stats(StatsArgs),
    /// End an emulator, the processes in its nodes, and the nodes; returns when all is gone
    #[command(after_help = STOP_EXAMPLES)]
    Stop(NameArgs),
    /// Names of the emulators that run
    #[command(after_help = LIST_EXAMPLES)]
    List,
}

/// `wan run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Name for the other commands; default: `wan`, or a unique one with a command
    pub name: Option<String>,
    /// Names of the hosts; every two of them are linked
    #[arg(long, default_value = "a,b", value_delimiter = ',', value_name = "NAMES")]
    pub nodes: Vec<String>,
    #[command(flatten)]
    pub shape: ShapeArgs,
    /// One direction that differs, with the options above without dashes: a:b,delay=5ms,loss=1%
    #[arg(long, value_parser = link, value_name = "FROM:TO,OPTION=VALUE...", allow_hyphen_values = true)]
    pub link: Vec<(LinkName, Change)>,
    /// The same seed loses and reorders the same segments, counted per direction
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Exit with 3 at the end when more than one packet in 100 was released later than this
    #[arg(long, value_parser = time, value_name = "TIME", allow_hyphen_values = true)]
    pub fail_late: Option<Nanos>,
    /// Write a line to this file descriptor when the nodes can be used, and close it
    #[arg(long, value_name = "FD")]
    pub ready_fd: Option<RawFd>,
    /// The ready line on stdout, and the statistics at the end, as JSON
    #[arg(long, conflicts_with = "command")]
    pub json: bool,
    /// Command to run in the first node
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// What a link is like.
#[derive(Debug, Default, Args)]
pub struct ShapeArgs {
    /// Round trip: half of it in each direction
    #[arg(long, value_parser = time, value_name = "TIME", conflicts_with = "delay", allow_hyphen_values = true)]
    pub rtt: Option<Nanos>,
    /// Delay of one direction
    #[arg(long, value_parser = time, value_name = "TIME", allow_hyphen_values = true)]
    pub delay: Option<Nanos>,
    /// Rate of IP packets, in bits or bytes a second: 100mbit, 12MiB/s, none
    #[arg(long, value_parser = rate, allow_hyphen_values = true)]
    pub rate: Option<Rate>,
    /// What may wait for the transmitter: 256k, 50ms, auto (rate x twice the delay, at least 64 KiB)
    #[arg(long, value_parser = queue, allow_hyphen_values = true)]
    pub queue: Option<Queue>,
    /// Share of the segments that is lost
    #[arg(long, value_parser = share, value_name = "PERCENT", allow_hyphen_values = true)]
    pub loss: Option<Share>,
    /// The delay varies slowly by so much in both directions; the order is kept
    #[arg(long, value_parser = time, value_name = "TIME", allow_hyphen_values = true)]
    pub jitter: Option<Nanos>,
    /// Share of the segments that is overtaken by later ones
    #[arg(long, value_parser = share, value_name = "PERCENT", allow_hyphen_values = true)]
    pub reorder: Option<Share>,
    /// How much later an overtaken segment arrives [default: 1ms]
    #[arg(long, value_parser = time, value_name = "TIME", allow_hyphen_values = true)]
    pub reorder_by: Option<Nanos>,
}

/// Bits per second; None has no limit.
pub type Rate = Option<u64>;

/// `wan exec`.
#[derive(Debug, Args)]
pub struct ExecArgs {
    /// The emulator
    pub name: String,
    /// The node
    pub node: String,
    /// The command
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// `wan set`.
#[derive(Debug, Args)]
pub struct SetArgs {
    #[command(flatten)]
    pub links: LinksArgs,
    #[command(flatten)]
    pub shape: ShapeArgs,
}

/// Directions of an emulator.
#[derive(Debug, Args)]
pub struct LinksArgs {
    /// The emulator
    pub name: String,
    /// Directions; default: all
    #[arg(value_name = "FROM:TO")]
    pub links: Vec<LinkName>,
}

/// `wan stats`.
#[derive(Debug, Args)]
pub struct StatsArgs {
    /// The emulator
    pub name: String,
    /// As JSON
    #[arg(long)]
    pub json: bool,
    /// Reset the lateness afterwards
    #[arg(long)]
    pub reset: bool,
    /// Exit with 3 when more than one packet in 100 was released later than this
    #[arg(long, value_parser = time, value_name = "TIME", allow_hyphen_values = true)]
    pub fail_late: Option<Nanos>,
}

/// An emulator.
#[derive(Debug, Args)]
pub struct NameArgs {
    /// The emulator
    pub name: String,
}

impl ShapeArgs {
    pub fn change(&self) -> Change {
        Change {
            delay: self.delay.or(self.rtt.map(|rtt| rtt / 2)),
            rate: self.rate,
            queue: self.queue,
            loss: self.loss,
            jitter: self.jitter,
            reorder: self.reorder,
            reorder_by: self.reorder_by,
        }
    }
}

impl RunArgs {
    /// The emulator that was asked for.
    pub fn config(&self) -> crate::Result<WanConfig> {
        let own = WanConfig::default();
        let settings = self.shape.change().applied_to(&own.settings)?;
        let name = match (&self.name, self.command.is_empty()) {
            (Some(name), _) => name.clone(),
            (None, true) => "wan".into(),
            (None, false) => own.name,
        };
        Ok(WanConfig { name, nodes: self.nodes.clone(), settings, links: self.link.clone(), seed: self.seed })
    }
}

type Parsed<T> = std::result::Result<T, String>;

fn time(text: &str) -> Parsed<Nanos> {
    let time = units::time(text, "ms");
    time.map(|time| time.as_nanos() as Nanos).map_err(|_| {
        "allowed: a number with us, ms or s (500us, 25ms, 1s); a bare number is milliseconds".into()
    })
}

fn rate(text: &str) -> Parsed<Rate> {
    match text {
        "none" => Ok(None),
        _ => units::rate(text)
            .map(|bytes| Some((bytes * 8.0).round() as u64))
            .map_err(|forms| format!("allowed: none, or {forms}")),
    }
}

fn queue(text: &str) -> Parsed<Queue> {
    let size = || units::size(text).map(Queue::Bytes).ok();
    match text {
        "auto" => Ok(Queue::Auto),
        _ => size()
            .or_else(|| time(text).map(Queue::Time).ok())
            .ok_or_else(|| format!("allowed: auto, {}, or a time: 50ms", units::SIZE_FORMS)),
    }
}

fn share(text: &str) -> Parsed<Share> {
    let number = text.strip_suffix('%').filter(|number| number.starts_with(|c: char| c.is_ascii_digit()));
    let percent = number.and_then(|number| number.parse::<f64>().ok());
    percent
        .filter(|percent| *percent <= 100.0)
        .map(|percent| (percent / 100.0 * f64::from(WHOLE)).round() as Share)
        .ok_or_else(|| "allowed: percent from 0% to 100%, with the sign: 0.1%".into())
}

/// Parses a link with its settings, such as `a:b,delay=5ms,loss=1%`.
fn link(text: &str) -> Parsed<(LinkName, Change)> {
    let mut parts = text.split(',');
    let name: LinkName = parts.next().unwrap_or_default().parse()?;
    let mut change = Change::default();
    for part in parts {
        let (option, value) = part.split_once('=').ok_or_else(|| format!("{part:?} is not OPTION=VALUE"))?;
        match option {
            "delay" => change.delay = Some(time(value)?),
            "rtt" => change.delay = Some(time(value)? / 2),
            "rate" => change.rate = Some(rate(value)?),
            "queue" => change.queue = Some(queue(value)?),
            "loss" => change.loss = Some(share(value)?),
            "jitter" => change.jitter = Some(time(value)?),
            "reorder" => change.reorder = Some(share(value)?),
            "reorder-by" => change.reorder_by = Some(time(value)?),
            _ => {
                let known = "delay, rtt, rate, queue, loss, jitter, reorder, reorder-by";
                return Err(format!("{option:?} is unknown; allowed: {known}"));
            }
        }
    }
    Ok((name, change))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn option_values_are_parsed_exactly_or_refused() {
        assert_eq!(
            (time("500us"), time("25"), time("1.5s")),
            (Ok(500_000), Ok(25_000_000), Ok(1_500_000_000))
        );
        assert_eq!(
            (rate("100mbit"), rate("1MiB/s"), rate("none")),
            (Ok(Some(100_000_000)), Ok(Some(8 << 20)), Ok(None))
        );
        assert_eq!(
            (queue("256k"), queue("50ms"), queue("auto")),
            (Ok(Queue::Bytes(256 << 10)), Ok(Queue::Time(50_000_000)), Ok(Queue::Auto))
        );
        assert_eq!((share("0.1%"), share("100%"), share("0%")), (Ok(1_000_000), Ok(WHOLE), Ok(0)));
        for wrong in ["1", "0.01", "-1%", "101%", "%", "nan%", "inf%", "1%%"] {
            assert!(share(wrong).is_err(), "{wrong}");
        }
        assert!(time("5x").is_err() && rate("1gbps").is_err() && queue("5 bananas").is_err());
    }

    #[test]
    fn single_direction_accepts_the_same_options() {
        let (name, change) = link("b:a,delay=5ms,rate=10mbit,loss=1%").unwrap();
        assert_eq!(name.to_string(), "b:a");
        let expected = Change {
            delay: Some(5_000_000),
            rate: Some(Some(10_000_000)),
            loss: Some(WHOLE / 100),
            ..Change::default()
        };
        assert_eq!(change, expected);
        for wrong in ["", "a", "a:,loss=1%", "a:b,loss", "a:b,color=red", "a:b,loss=1"] {
            assert!(link(wrong).is_err(), "{wrong}");
        }
    }
}
