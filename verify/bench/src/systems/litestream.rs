use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::context::need;
use crate::driver::drive;
use crate::error::During;
use crate::process::{Process, Scratch};
use crate::processes::ProcessGroup;
use crate::run::RunResult;
use crate::systems::{Case, System, bytes_below, drive_config};
use crate::workload::create_databases;
use crate::{Context, Result};

/// Litestream with a file replica on the same disk, at its default interval of one second.
pub(super) struct Litestream;

impl System for Litestream {
    fn name(&self) -> &str {
        "Litestream on SQLite FULL (async)"
    }

    fn prepare(&mut self, context: &Context) -> Result<()> {
        need(&context.programs.litestream, "litestream is not installed: run bench/rivals.sh (needs Go)")
            .map(|_| ())
    }

    fn run(&mut self, context: &Context, case: Case) -> Result<RunResult> {
        let program = need(&context.programs.litestream, "litestream is gone")?;
        let scratch = Scratch::new(&context.base)?;
        let databases = create_databases(scratch.path(), case.layout.databases(case.clients))?;
        let replicas = scratch.directory("replicas")?;
        let config = scratch.path().join("litestream.yml");
        std::fs::write(&config, configuration(&databases, &replicas))
            .during(|| "write litestream.yml".into())?;
        let mut command = Command::new(program);
        command.arg("replicate").arg("-config").arg(&config);
        let process = Process::start(command, Some(&scratch.path().join("litestream.log")), libc::SIGTERM)?;
        // The first upload is a copy of the database; it must end before measuring.
        process.await_ready("first snapshot of every database", Duration::from_secs(60), || {
            Ok((0..databases.len()).all(|nth| bytes_below(&replicas.join(nth.to_string())) > 0))
        })?;

        let copied = lowest_level_bytes(&replicas);
        let observed = [ProcessGroup { name: "replicator", pids: vec![process.pid()], with_children: false }];
        let mut result = drive(&context.worker, &drive_config(context, self, case, &databases), &observed)?;
        // Stopping uploads the rest. Only the lowest level counts, because compaction writes the same changes again.
        process.stop()?;
        let uploaded = lowest_level_bytes(&replicas).saturating_sub(copied);
        result.redo_bytes_per_commit = Some(uploaded as f64 / result.commits_in_all.max(1) as f64);
        Ok(result)
    }
}

fn configuration(databases: &[PathBuf], replicas: &Path) -> String {
    let mut text = String::from("dbs:\n");
    for (nth, database) in databases.iter().enumerate() {
        let replica = replicas.join(nth.to_string());
        let _ = writeln!(text, "  - path: {}", database.display());
        let _ = writeln!(text, "    replica:\n      type: file\n      path: {}", replica.display());
    }
    text
}

/// Bytes of the level-0 files of all replicas: `N/ltx/0/*.ltx`.
fn lowest_level_bytes(replicas: &Path) -> u64 {
    let each = std::fs::read_dir(replicas).into_iter().flatten().flatten();
    each.map(|replica| bytes_below(&replica.path().join("ltx/0"))).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_database_has_a_replica_of_its_own() {
        let text = configuration(&["/d/a".into(), "/d/b".into()], Path::new("/r"));
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        assert_eq!(lines[0], "dbs:");
        assert_eq!(&lines[1..5], ["- path: /d/a", "replica:", "type: file", "path: /r/0"]);
        assert_eq!(lines[8], "path: /r/1");
    }
}
