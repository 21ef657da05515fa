//! An application process that runs one statement at a time on request; see [`crate::application::client`].

use crate::application::client::Answer;
use crate::programs::Programs;
use crate::{CampaignError, During, Result};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

pub struct Application {
    child: Child,
    input: Option<ChildStdin>,
    answers: Receiver<Answer>,
}

impl Application {
    /// Starts an application with the extension that has `database` open.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(programs: &Programs, database: &Path, log: &Path) -> Result<Application> {
        let mut command = Command::new(&programs.campaign);
        command.arg("client").arg("--extension").arg(&programs.extension).arg(database);
        let file = std::fs::File::create(log).during(|| format!("create {}", log.display()))?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(file);
        // SAFETY: both are async-signal-safe and touch no memory of ours. With SIGXFSZ ignored, a write beyond the file
        // size limit fails, as on a full volume.
        unsafe {
            command.pre_exec(|| {
                libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                Ok(())
            });
        }
        let mut child = command.spawn().during(|| "start an application".into())?;
        let (send, answers) = channel();
        if let Some(output) = child.stdout.take() {
            std::thread::spawn(move || {
                let lines = BufReader::new(output).lines().map_while(std::io::Result::ok);
                for answer in lines.map_while(|line| serde_json::from_str(&line).ok()) {
                    if send.send(answer).is_err() {
                        return;
                    }
                }
            });
        }
        Ok(Application { input: child.stdin.take(), child, answers })
    }

    /// Sends statements without waiting for their result.
    pub fn send(&mut self, sql: &str) -> Result<()> {
        let line = format!("{}\n", serde_json::json!(sql));
        let Some(input) = self.input.as_mut() else { return Ok(()) };
        input.write_all(line.as_bytes()).during(|| "write to an application".into())
    }

    /// Returns the result of the oldest statements that are not answered yet, if it arrives within `limit`.
    pub fn answer(&self, limit: Duration) -> Option<Answer> {
        self.answers.recv_timeout(limit).ok()
    }

    /// Runs statements that must succeed within `limit`.
    pub fn must(&mut self, sql: &str, limit: Duration) -> Result<()> {
        self.send(sql)?;
        match self.answer(limit) {
            Some(Answer::Rows(_)) => Ok(()),
            answer => Err(CampaignError::Unreadable {
                what: format!("the answer to `{sql}`"),
                detail: format!("{answer:?}"),
            }),
        }
    }

    /// Limits the size of files that it may write to `bytes`; `None` removes the limit.
    pub fn limit_files(&self, bytes: Option<u64>) {
        let limit = bytes.unwrap_or(libc::RLIM_INFINITY);
        let limits = libc::rlimit { rlim_cur: limit, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: a valid structure; the process is a child that is not reaped before `self` is dropped.
        unsafe {
            libc::prlimit(self.child.id() as libc::pid_t, libc::RLIMIT_FSIZE, &limits, std::ptr::null_mut())
        };
    }

    pub fn freeze(&self) {
        // SAFETY: no memory is involved; the child is not reaped before `self` is dropped.
        unsafe { libc::kill(self.child.id() as libc::pid_t, libc::SIGSTOP) };
    }
}

impl Drop for Application {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
