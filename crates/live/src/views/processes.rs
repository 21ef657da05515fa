//! Threads of an instance.

use super::builder::{Builder, cell};
use super::logs::{all_groups, list};
use super::text::time;
use standfast_documents::catalog::ConfiguredDestination;
use standfast_documents::group::Group;
use standfast_documents::status::{Received, Source};
use standfast_instruments::{Event, Observation, ThreadSample, WaitClass};
use standfast_views::Cell;

/// Kind of work of a thread, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    Write,
    Archive,
    Send,
    Receive,
    Apply,
    Other(&'static str),
}

fn work_of(name: &str) -> Option<Work> {
    Some(match name {
        "lgwr" => Work::Write,
        "mrp0" => Work::Apply,
        "ckpt" => Work::Other("checkpoint"),
        "dbw0" => Work::Other("database writer"),
        "pmon" => Work::Other("process monitor"),
        "ask0" => Work::Other("data delay"),
        "tmon" => Work::Other("redo transport monitor"),
        "arcl" => Work::Other("archive local"),
        name if name.starts_with("arc") => Work::Archive,
        name if name.starts_with("rfs") => Work::Receive,
        name if name.starts_with("feed-") || name.starts_with("ack-") => Work::Send,
        _ => return None,
    })
}

fn is_idle(thread: &ThreadSample) -> bool {
    let class = thread.event.as_deref().and_then(Event::named).map(Event::class);
    class == Some(WaitClass::Idle)
}

/// Position of a thread in the redo: the log group that contains it, and the block.
struct Place<'a> {
    group: &'a Group,
    block: Option<u64>,
}

fn place<'a>(at: &'a Observation, work: Work) -> Option<Place<'a>> {
    let position = match work {
        Work::Write => at.status.durable?,
        Work::Receive => received(at)?.hardened?,
        Work::Apply => received(at)?.applied?,
        _ => return None,
    };
    let contains = |group: &&Group| {
        let begins = group.first_scn.is_some_and(|first| first <= position);
        begins && group.next_scn.is_none_or(|next| position < next)
    };
    let group = all_groups(at).iter().find(contains)?;
    let (begin, block_bytes) = (group.first_scn?, at.catalog.logs.as_ref()?.block_bytes?);
    // The first block is the header.
    let block = position.saturating_sub(begin).checked_div(block_bytes).map(|block| block + 1);
    Some(Place { group, block })
}

/// Configured destination of a sending thread: `feed-NAME`, `ack-NAME`, or `arcN-NAME` for missing logs.
fn destination_of<'a>(at: &'a Observation, thread: &str) -> Option<&'a ConfiguredDestination> {
    let name = thread.split_once('-').filter(|(kind, _)| !kind.starts_with("rfs")).map(|(_, name)| name)?;
    list(&at.catalog.destinations).iter().find(|destination| destination.name.as_deref() == Some(name))
}

fn is_async(destination: Option<&ConfiguredDestination>) -> bool {
    destination.is_some_and(|destination| destination.mode.as_deref() == Some("async"))
}

fn received(at: &Observation) -> Option<&Received> {
    at.status.standby.as_ref()
}

fn source(at: &Observation) -> Option<&Source> {
    received(at)?.source.as_ref()
}

fn role(at: &Observation, thread: &str, work: Work) -> &'static str {
    match work {
        Work::Write => "log writer",
        Work::Archive if thread.contains('-') => "archive gap",
        Work::Archive => "archive redo",
        Work::Receive => "RFS",
        Work::Apply => "managed recovery",
        Work::Send if is_async(destination_of(at, thread)) => "async ORL multi",
        Work::Send => "sync",
        Work::Other(role) => role,
    }
}

fn delay_minutes(at: &Observation, work: Work) -> Option<u64> {
    received(at).filter(|_| work == Work::Apply)?.delay_s.map(|delay| delay / 60)
}

pub fn dataguard_process(rows: &mut Builder, at: &Observation) {
    for thread in &at.sample.threads {
        let Some(work) = work_of(&thread.name) else { continue };
        let destination = destination_of(at, &thread.name);
        let action = match &thread.event {
            None => "WORKING",
            Some(_) if is_idle(thread) => "IDLE",
            Some(event) => event,
        };
        let client = match work {
            Work::Receive => source(at).and_then(|source| source.role.as_deref()),
            Work::Send => Some("standby"),
            _ => None,
        };
        let id = destination.and_then(|destination| destination.id);
        let cells = [
            ("name", cell(thread.name.as_str())),
            ("pid", cell(at.status.pid)),
            ("type", cell("KSB")),
            ("role", cell(role(at, &thread.name, work))),
            ("proc_time", cell(time(at.sample.started_us))),
            ("action", cell(action)),
            ("client_role", cell(client)),
            ("dest_id", cell(id)),
            ("dest_mask", cell(id.filter(|id| (1..=31).contains(id)).map(|id| 1u64 << (id - 1)))),
            ("dbid", cell(&at.catalog.family)),
            ("dgid", cell(&at.catalog.family)),
            ("instance", cell(1u64)),
        ];
        rows.row(cells.into_iter().chain(log_cells(at, work)));
    }
}

/// Log position columns of a process with this kind of work.
fn log_cells(at: &Observation, work: Work) -> [(&'static str, Cell); 6] {
    let place = place(at, work);
    [
        ("group_no", cell(place.as_ref().and_then(|place| place.group.group))),
        ("resetlog_id", cell(&at.catalog.incarnation_id)),
        ("thread_no", cell(place.as_ref().map(|_| 1u64))),
        ("sequence_no", cell(place.as_ref().and_then(|place| place.group.sequence))),
        ("block_no", cell(place.and_then(|place| place.block))),
        ("delay_mins", cell(delay_minutes(at, work))),
    ]
}

fn state(at: &Observation, thread: &ThreadSample, work: Work) -> &'static str {
    let has_gap = received(at).is_some_and(|received| received.gap.is_some());
    match work {
        Work::Apply if has_gap => "WAIT_FOR_GAP",
        Work::Apply if is_idle(thread) => "WAIT_FOR_LOG",
        Work::Apply => "APPLYING_LOG",
        Work::Receive if is_idle(thread) => "IDLE",
        Work::Receive => "RECEIVING",
        Work::Archive if is_idle(thread) => "CONNECTED",
        Work::Archive => "CLOSING",
        _ if is_idle(thread) => "IDLE",
        _ => "WRITING",
    }
}

pub fn managed_standby(rows: &mut Builder, at: &Observation) {
    for thread in &at.sample.threads {
        let Some(work) = work_of(&thread.name) else { continue };
        let process = match work {
            Work::Write => "LGWR",
            Work::Archive => "ARCH",
            Work::Send => "LNS",
            Work::Receive => "RFS",
            Work::Apply => "MRP0",
            Work::Other(_) => continue,
        };
        let of_primary = work == Work::Receive
            && source(at).is_some_and(|source| source.role.as_deref() == Some("primary"));
        let cells = [
            ("process", cell(process)),
            ("pid", cell(at.status.pid)),
            ("status", cell(state(at, thread, work))),
            ("client_process", cell(if of_primary { "LGWR" } else { "N/A" })),
            ("client_pid", cell("N/A")),
            ("client_dbid", cell(&at.catalog.family)),
            ("known_agents", Cell::Integer(0)),
            ("active_agents", Cell::Integer(0)),
        ];
        rows.row(cells.into_iter().chain(log_cells(at, work)));
    }
}

#[cfg(test)]
mod tests {
    use crate::views::example::{self, Shown};
    use standfast_documents::status::Gap;

    #[test]
    fn threads_are_shown_with_role_action_and_log_position() {
        let shown = Shown::of("v$dataguard_process", &example::family());
        let columns =
            ["db_unique_name", "name", "role", "action", "sequence_no", "block_no", "dest_id", "dest_mask"];
        let expected = [
            ["south", "lgwr", "log writer", "log file parallel write", "8", "1", "-", "-"],
            ["south", "feed-north", "sync", "IDLE", "-", "-", "1", "1"],
            ["north", "rfs-1", "RFS", "IDLE", "8", "1", "-", "-"],
            ["north", "mrp0", "managed recovery", "WORKING", "8", "1", "-", "-"],
        ];
        assert_eq!(shown.all(&columns), expected);
    }

    #[test]
    fn gap_archivers_and_redo_archivers_have_different_roles() {
        let mut at = example::primary();
        at.sample.threads[0].name = "arc2-north".into();
        at.sample.threads[1].name = "arc0".into();
        let rows = Shown::of("v$dataguard_process", &at).all(&["role", "dest_id"]);
        assert_eq!(rows, [["archive gap", "1"], ["archive redo", "-"]]);
    }

    #[test]
    fn managed_standby_view_shows_the_same_in_its_own_terms() {
        let mut at = example::standby();
        let states =
            |at: &_| Shown::of("v$managed_standby", at).all(&["process", "status", "client_process"]);
        assert_eq!(states(&at), [["RFS", "IDLE", "LGWR"], ["MRP0", "APPLYING_LOG", "N/A"]]);
        at.status.standby.as_mut().unwrap().gap = Some(Gap { low_sequence: Some(3), ..Gap::default() });
        assert_eq!(states(&at)[1][1], "WAIT_FOR_GAP");
    }
}
