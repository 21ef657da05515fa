//! PostgreSQL's own load generator, measured over a window of time.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::error::During;
use crate::process::Process;
use crate::processes::{ProcessGroup, Usage};
use crate::run::RunResult;
use crate::statistics::Latencies;
use crate::systems::Case;
use crate::workload::{ACCOUNTS, NOTE};
use crate::{BenchError, Context, Result, interrupt};

/// The transaction of the workload in one statement, so that a commit costs one round trip to the server.
pub(super) fn script() -> String {
    format!(
        "\\set id random(1, {ACCOUNTS})\n\
         WITH u AS (UPDATE acct SET bal=bal+1 WHERE id=:id RETURNING id) \
         INSERT INTO hist(conn,seq,acct,note) SELECT :client_id, 0, id, '{NOTE}' FROM u;\n"
    )
}

/// One transaction in the log of pgbench.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Logged {
    client: usize,
    latency_us: u64,
    /// End of the transaction, microseconds since the Unix epoch.
    ended_us: u64,
}

/// Runs `command` (pgbench with its connection options) and counts the transactions that ended within the measured
/// window.
pub(super) fn measure(
    mut command: Command,
    directory: &Path,
    context: &Context,
    case: Case,
    name: &str,
    servers: &[ProcessGroup],
) -> Result<RunResult> {
    let script_path = directory.join("script.sql");
    std::fs::write(&script_path, script()).during(|| "write the pgbench script".into())?;
    // Connecting takes a while at 40 clients: run longer than the window, and take the transactions in it from the log.
    let seconds = (context.warmup + context.measure).as_secs_f64().ceil() as u64 + 2;
    let clients = case.clients.to_string();
    command.args(["-n", "-M", "prepared", "-l", "--log-prefix=pgbench", "-c", &clients]);
    command.args(["-j", if case.clients > 1 { "2" } else { "1" }, "-T", &seconds.to_string()]);
    command.arg("-f").arg(&script_path).current_dir(directory);
    let output = directory.join("pgbench.out");
    let process = Process::start(command, Some(&output), libc::SIGKILL)?;

    let application = ProcessGroup { name: "application", pids: vec![process.pid()], with_children: false };
    let groups: Vec<&ProcessGroup> = std::iter::once(&application).chain(servers).collect();
    process.await_ready("pgbench's first transactions", Duration::from_secs(20), || {
        Ok(logged_anything(directory))
    })?;
    interrupt::pause(context.warmup)?;
    let before: Vec<Usage> = groups.iter().map(|group| group.usage()).collect();
    let (started, window_start) = (Instant::now(), now_us());
    interrupt::pause(context.measure)?;
    let (measured, window_end) = (started.elapsed(), now_us());
    let after: Vec<Usage> = groups.iter().map(|group| group.usage()).collect();

    if process.wait(Duration::ZERO) {
        return Err(process.failed("ended before the measured time did"));
    }
    if !process.wait(Duration::from_secs(seconds + 60)) {
        return Err(process.failed("did not end"));
    }
    let text = std::fs::read_to_string(&output).during(|| format!("read {}", output.display()))?;
    let commits_in_all = processed(&text).ok_or_else(|| process.failed("reported no transactions"))?;
    let logged = read_logs(directory)?;
    let mut result = summarise(&logged, window_start..window_end, measured, case);
    result.system = name.to_owned();
    result.commits_in_all = commits_in_all;
    let readings = groups.iter().zip(before.iter().zip(&after));
    result.usage = readings.map(|(group, (b, a))| group.per_commit(*b, *a, result.commits)).collect();
    Ok(result)
}

fn now_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}

fn log_files(directory: &Path) -> impl Iterator<Item = std::path::PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter(|entry| is_log(&entry.file_name().to_string_lossy())).map(|entry| entry.path())
}

fn is_log(name: &str) -> bool {
    name.strip_prefix("pgbench.").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// pgbench creates its logs before it connects and writes them in chunks of 4 KiB: a log with content means that some
/// hundred transactions ran.
fn logged_anything(directory: &Path) -> bool {
    log_files(directory).any(|path| path.metadata().is_ok_and(|info| info.len() > 0))
}

fn read_logs(directory: &Path) -> Result<Vec<Logged>> {
    let mut all = Vec::new();
    for path in log_files(directory) {
        let text = std::fs::read_to_string(&path).during(|| format!("read {}", path.display()))?;
        for line in text.lines() {
            all.push(parse(line).ok_or_else(|| BenchError::Unreadable {
                what: "a line of pgbench's log".into(),
                detail: line.to_owned(),
            })?);
        }
    }
    Ok(all)
}

/// `client_id transaction_no time script_no time_epoch time_us`.
fn parse(line: &str) -> Option<Logged> {
    let fields: Vec<u64> = line.split(' ').map_while(|field| field.parse().ok()).collect();
    let &[client, _, latency_us, _, seconds, microseconds, ..] = &fields[..] else { return None };
    Some(Logged { client: client as usize, latency_us, ended_us: seconds * 1_000_000 + microseconds })
}

fn processed(output: &str) -> Option<u64> {
    let line =
        output.lines().find_map(|line| line.strip_prefix("number of transactions actually processed:"))?;
    line.trim().split('/').next()?.parse().ok()
}

fn summarise(logged: &[Logged], window: std::ops::Range<u64>, measured: Duration, case: Case) -> RunResult {
    let mut latencies = Latencies::default();
    let mut per_client = vec![0u64; case.clients];
    for transaction in logged.iter().filter(|transaction| window.contains(&transaction.ended_us)) {
        latencies.record(transaction.latency_us * 1000);
        if let Some(commits) = per_client.get_mut(transaction.client) {
            *commits += 1;
        }
    }
    let commits = latencies.count();
    RunResult {
        system: String::new(),
        clients: case.clients,
        layout: case.layout,
        seconds: measured.as_secs_f64(),
        commits,
        commits_in_all: commits,
        commits_per_second: commits as f64 / measured.as_secs_f64(),
        latency: latencies.summary(),
        latencies,
        commits_of_clients: per_client,
        errors: 0,
        first_error: None,
        redo_bytes_per_commit: None,
        usage: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Layout;

    #[test]
    fn pgbench_log_line_is_parsed_and_an_invalid_one_is_not() {
        let line = "3 199 2241 0 1175850568 995598";
        let expected = Logged { client: 3, latency_us: 2241, ended_us: 1_175_850_568_995_598 };
        assert_eq!(parse(line), Some(expected));
        assert_eq!(parse("3 199 failed 0 1175850568 995598"), None);
        assert_eq!(processed("x\nnumber of transactions actually processed: 8000/8000\n"), Some(8000));
        assert_eq!(processed("number of transactions actually processed: 12\n"), Some(12));
        assert!(is_log("pgbench.4711") && is_log("pgbench.4711.1") && !is_log("pgbench.out"));
    }

    #[test]
    fn only_transactions_that_ended_in_the_window_count() {
        let at = |client, ended_us| Logged { client, latency_us: 100, ended_us };
        let logged = [at(0, 5), at(0, 10), at(1, 11), at(0, 19), at(1, 20)];
        let case = Case { clients: 2, layout: Layout::OneDatabase };
        let result = summarise(&logged, 10..20, Duration::from_secs(1), case);
        assert_eq!((result.commits, result.fairness()), (3, 0.5));
        assert_eq!(result.commits_of_clients, [2, 1]);
        assert!((result.latency.p50_us - 100.0).abs() < 0.5);
    }
}
