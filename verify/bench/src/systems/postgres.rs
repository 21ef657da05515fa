use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::context::need;
use crate::error::During;
use crate::process::{Process, Scratch, run};
use crate::processes::ProcessGroup;
use crate::run::RunResult;
use crate::systems::{Case, System, free_port, pgbench};
use crate::workload::{ACCOUNTS, Layout, PAD};
use crate::{BenchError, Context, Result};

/// Longest path of a Unix socket that the kernel accepts, minus the socket's own name.
const SOCKET_DIRECTORY_MAX: usize = 85;
const TIMEOUT: Duration = Duration::from_secs(60);
/// Shortest warm-up. After a start, the first change of each page writes the whole page to the WAL; measure the server
/// after that, because it is in that state most of the time.
const WARMUP: Duration = Duration::from_secs(3);

/// Two clusters of the Debian package, the second a synchronous standby of the first; all other settings are those of
/// the package.
#[derive(Default)]
pub(super) struct Postgres {
    clusters: Option<Clusters>,
}

/// Files of both clusters, prepared once; the servers only run during a run.
struct Clusters {
    programs: PathBuf,
    /// User and group of the servers when this process is root, which PostgreSQL refuses.
    user: Option<(u32, u32)>,
    sockets: PathBuf,
    primary: Cluster,
    standby: Cluster,
    scratch: Scratch,
}

struct Cluster {
    data: PathBuf,
    port: u16,
}

impl System for Postgres {
    fn name(&self) -> &str {
        "PostgreSQL, synchronous standby"
    }

    fn prepare(&mut self, context: &Context) -> Result<()> {
        let remedy = "PostgreSQL is not installed: apt-get install postgresql-15";
        let programs = need(&context.programs.postgres, remedy)?;
        need(&Some(programs.join("pgbench")), remedy)?;
        self.clusters = Some(Clusters::create(programs, context)?);
        Ok(())
    }

    fn run(&mut self, context: &Context, case: Case) -> Result<RunResult> {
        if case.layout == Layout::DatabasePerClient {
            return Err(BenchError::Unavailable(
                "one write-ahead log serves all databases of a cluster: see the row of one database".into(),
            ));
        }
        let context = &Context { warmup: context.warmup.max(WARMUP), ..context.clone() };
        let clusters = self.clusters.as_ref();
        let clusters = clusters.ok_or_else(|| BenchError::Workload("PostgreSQL was not prepared".into()))?;
        clusters.run(context, case, self.name())
    }
}

impl Clusters {
    fn create(programs: &Path, context: &Context) -> Result<Clusters> {
        let scratch = Scratch::new(&context.base)?;
        let user = unprivileged_user()?;
        let ours = scratch.directory("pg")?;
        let during = || format!("hand {} to the servers' user", ours.display());
        if let Some((uid, gid)) = user {
            chown(&ours, Some(uid), Some(gid)).during(during)?;
        }
        std::fs::set_permissions(&ours, std::fs::Permissions::from_mode(0o755)).during(during)?;
        if ours.as_os_str().len() > SOCKET_DIRECTORY_MAX {
            let shown = ours.display();
            return Err(BenchError::Unavailable(format!(
                "{shown} is too long for a Unix socket: pass a shorter --dir"
            )));
        }
        let clusters = Clusters {
            programs: programs.to_owned(),
            user,
            primary: Cluster { data: ours.join("primary"), port: free_port()? },
            standby: Cluster { data: ours.join("standby"), port: free_port()? },
            sockets: ours,
            scratch,
        };
        clusters.fill()?;
        Ok(clusters)
    }

    fn fill(&self) -> Result<()> {
        let Cluster { data, port } = &self.primary;
        let initdb = ["-U", "bench", "--auth=trust", "-N", "-E", "UTF8", "--locale=C"];
        run(self.command("initdb").arg("-D").arg(data).args(initdb))?;
        let server = self.start(&self.primary, "")?;
        let fill = format!(
            "CREATE TABLE acct(id INTEGER PRIMARY KEY, bal INTEGER, pad TEXT);
             CREATE TABLE hist(id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, conn INT, seq INT, acct INT, note TEXT);
             INSERT INTO acct SELECT i, 0, repeat('x', {PAD}) FROM generate_series(1, {ACCOUNTS}) AS i;"
        );
        self.query(&fill)?;
        self.query("VACUUM ANALYZE")?;
        let backup = ["-U", "bench", "-h", "127.0.0.1", "-p", &port.to_string(), "-R", "-c", "fast", "-N"];
        run(self.command("pg_basebackup").arg("-D").arg(&self.standby.data).args(backup))?;
        server.stop()
    }

    fn run(&self, context: &Context, case: Case, name: &str) -> Result<RunResult> {
        let standby = self.start(&self.standby, "")?;
        let primary = self.start(&self.primary, "*")?;
        primary.await_ready("a synchronous standby", TIMEOUT, || {
            Ok(self.query("SELECT count(*) FROM pg_stat_replication WHERE sync_state='sync'")? == "1")
        })?;
        self.query("TRUNCATE hist")?;
        let directory = self.scratch.directory("load")?;
        let logged_before = self.wal_bytes()?;
        let server =
            |name, process: &Process| ProcessGroup { name, pids: vec![process.pid()], with_children: true };
        let servers = [server("instance", &primary), server("standby", &standby)];
        let mut command = Command::new(self.programs.join("pgbench"));
        command.arg("-h").arg(&self.sockets);
        command.args(["-U", "bench", "-p", &self.primary.port.to_string(), "postgres"]);
        let mut result = pgbench::measure(command, &directory, context, case, name, &servers)?;
        let bytes = self.wal_bytes()?.saturating_sub(logged_before);
        result.redo_bytes_per_commit = Some(bytes as f64 / result.commits_in_all.max(1) as f64);

        let found = self.query("SELECT count(*) FROM hist")?;
        if found != result.commits_in_all.to_string() {
            let expected = result.commits_in_all;
            return Err(BenchError::Workload(format!("hist has {found} rows after {expected} transactions")));
        }
        std::fs::remove_dir_all(&directory).during(|| "remove pgbench's logs".into())?;
        primary.stop()?;
        standby.stop()?;
        Ok(result)
    }

    /// Starts a server and waits until it accepts connections. SIGINT requests its fast shutdown.
    fn start(&self, cluster: &Cluster, synchronous_standby_names: &str) -> Result<Process> {
        let mut command = self.command("postgres");
        command.arg("-D").arg(&cluster.data);
        let settings = [
            ("port", cluster.port.to_string()),
            ("listen_addresses", "127.0.0.1".into()),
            ("unix_socket_directories", self.sockets.display().to_string()),
            ("synchronous_commit", "on".into()),
            ("synchronous_standby_names", synchronous_standby_names.into()),
        ];
        for (name, value) in settings {
            command.arg("-c").arg(format!("{name}={value}"));
        }
        let log = self.scratch.path().join(format!("postgres-{}.log", cluster.port));
        let process = Process::start(command, Some(&log), libc::SIGINT)?;
        process.await_ready("PostgreSQL answers", TIMEOUT, || {
            let mut ready = self.command("pg_isready");
            ready.arg("-h").arg(&self.sockets).args(["-p", &cluster.port.to_string()]);
            match run(&mut ready) {
                Err(BenchError::Program { .. }) => Ok(false),
                other => other.map(|_| true),
            }
        })?;
        Ok(process)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.programs.join(program));
        if let Some((uid, gid)) = self.user {
            command.uid(uid).gid(gid);
        }
        // The servers' user may have no access to the directory of the caller.
        command.current_dir(&self.sockets).env("LC_ALL", "C").env_remove("PGHOST").env_remove("PGPORT");
        command
    }

    /// Queries one value at the primary.
    fn query(&self, text: &str) -> Result<String> {
        let mut command = self.command("psql");
        command.arg("-h").arg(&self.sockets).args(["-p", &self.primary.port.to_string()]);
        command.args([
            "-U",
            "bench",
            "-d",
            "postgres",
            "-X",
            "-A",
            "-t",
            "-q",
            "-v",
            "ON_ERROR_STOP=1",
            "-c",
            text,
        ]);
        Ok(run(&mut command)?.trim().to_owned())
    }

    fn wal_bytes(&self) -> Result<u64> {
        let text = self.query("SELECT pg_current_wal_lsn() - '0/0'")?;
        text.parse().map_err(|_| BenchError::Unreadable { what: "the WAL position".into(), detail: text })
    }
}

/// Returns the user to run PostgreSQL as when this process is root, which PostgreSQL refuses: `postgres`, or `nobody`.
fn unprivileged_user() -> Result<Option<(u32, u32)>> {
    // SAFETY: geteuid takes nothing and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        return Ok(None);
    }
    let users = std::fs::read_to_string("/etc/passwd").during(|| "read /etc/passwd".into())?;
    let found = ["postgres", "nobody"].iter().find_map(|name| ids_of(&users, name));
    found
        .map(Some)
        .ok_or_else(|| BenchError::Unavailable("no user postgres or nobody to run PostgreSQL as".into()))
}

fn ids_of(users: &str, name: &str) -> Option<(u32, u32)> {
    let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
    let mut fields = line.split(':').skip(2);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_its_whole_name() {
        let users =
            "root:x:0:0::/:/bin/sh\npostgres2:x:1:1::/:/\npostgres:x:101:104:admin:/var/lib:/bin/bash\n";
        assert_eq!(ids_of(users, "postgres"), Some((101, 104)));
        assert_eq!(ids_of(users, "nobody"), None);
    }
}
