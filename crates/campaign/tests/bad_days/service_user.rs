//! Root and the instance of a service user; files with tokens. Acting as another user takes root; without it the first test is
//! skipped and says so.

use crate::security::{create, primary, token};
use crate::support::{Place, TIMEOUT};
use standfast_campaign::instance::free_address;
use standfast_campaign::process::await_condition;
use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};

/// A user without a name.
const SERVICE: u32 = 60_001;

/// A directory that every user reaches, with the program in it.
struct Reachable(PathBuf);

impl Reachable {
    fn new(place: &Place) -> Reachable {
        let work = std::env::temp_dir().join(format!("standfast-service-user-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&work);
        std::fs::create_dir_all(&work).unwrap();
        std::fs::copy(&place.programs.standfast, work.join("standfast")).unwrap();
        for path in [&work, &work.join("standfast")] {
            std::fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
        }
        Reachable(work)
    }

    /// A line as typed in a shell.
    fn shell(&self, line: &str) -> Command {
        let mut command = Command::new("sh");
        let path = std::env::var("PATH").unwrap_or_default();
        command.args(["-c", line]).env("PATH", format!("{}:{path}", self.0.display())).current_dir(&self.0);
        command
    }

    fn run(&self, line: &str) -> Output {
        self.shell(line).output().unwrap()
    }

    /// The instance that the line starts, once it serves.
    fn start(&self, line: &str, directory: &Path) -> Started {
        let _ = std::fs::remove_file(directory.join("ready"));
        let started = Started(self.shell(&format!("exec {line}")).spawn().unwrap());
        await_condition("the instance serves", TIMEOUT, || {
            Ok(if directory.join("ready").exists() { Ok(()) } else { Err("no file `ready`".into()) })
        })
        .unwrap_or_else(|error| panic!("{line}: {error}"));
        started
    }
}

impl Drop for Reachable {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The commands that a refusal names, in order.
#[track_caller]
fn remedies(refused: &Output) -> Vec<String> {
    let said = said(refused);
    assert_eq!(refused.status.code(), Some(3), "{said}");
    let hint = said.split_once("hint: ").unwrap_or_else(|| panic!("{said}")).1;
    hint.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn root_runs_a_service_user_s_instance_only_when_told_to() {
    // SAFETY: has no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("skipped: acting as another user takes root");
        return;
    }
    let place = Place::new("service-user");
    let work = Reachable::new(&place);
    let directory = work.0.join("alpha");
    std::fs::create_dir(&directory).unwrap();
    chown(&directory, Some(SERVICE), Some(SERVICE)).unwrap();
    let address = free_address().unwrap();
    // Whatever root makes there the service could not read. Each remedy is carried out as it is typed.
    let init = format!("standfast init -D {} --name alpha --listen {address}", directory.display());
    let as_service = remedies(&work.run(&init));
    assert!(std::fs::read_dir(&directory).unwrap().next().is_none(), "root has made nothing");
    let made = work.run(&as_service[0]);
    assert!(made.status.success(), "{}", said(&made));
    let at = |words: &str| format!("standfast {words} -D {}", directory.display());
    for words in ["cert renew", "cert init", "cert allow x", "cert revoke x", "fence lift"] {
        let typed = remedies(&work.run(&at(words)));
        assert!(typed[0].starts_with(&format!("setpriv --reuid={SERVICE}")), "{typed:?}");
        assert!(typed[0].ends_with(&at(words)), "{typed:?}");
    }
    let both = remedies(&work.run(&at("start")));
    let owner = |name: &str| std::fs::symlink_metadata(directory.join(name)).unwrap().uid();
    {
        let _running = work.start(&both[0], &directory);
        assert_eq!((owner("ready"), owner("lock")), (SERVICE, SERVICE));
        // Root administers it; what is made then is the service user's.
        let renewed = work.run(&at("cert renew"));
        assert!(renewed.status.success(), "{}", said(&renewed));
        assert_eq!(owner("tls/identity.pem"), SERVICE);
        assert!(work.run(&at("stop")).status.success());
    }
    let _running = work.start(&both[1], &directory);
    assert_eq!(owner("ready"), 0);
    let alerts = std::fs::read_to_string(directory.join("alert.log")).unwrap();
    assert!(alerts.contains("RUNS AS ROOT in a directory of uid 60001"), "{alerts}");
    assert!(work.run(&at("stop")).status.success());
}

#[test]
fn a_token_file_that_others_may_read_is_refused_and_one_of_standby_token_is_not() {
    let place = Place::new("token-file");
    let (south, _) = primary(&place);
    let address = free_address().unwrap();
    let attempt = |file: &Path| {
        create(&place, &south.address, "north", &address, &["--token-file", &file.to_string_lossy()])
    };
    let good = token(&place, &south, "north", &[]);
    std::fs::set_permissions(&good, Permissions::from_mode(0o644)).unwrap();
    let typed = remedies(&attempt(&good));
    let refused = said(&attempt(Path::new("/dev/zero")));
    assert!(refused.contains("regular file") && refused.contains("--token-file -"), "{refused}");
    let link = place.path("link");
    std::os::unix::fs::symlink(&good, &link).unwrap();
    let refused = said(&attempt(&link));
    assert!(refused.contains("symbolic link") && refused.contains("--token-file -"), "{refused}");
    assert!(Command::new("sh").args(["-c", &typed[0]]).status().unwrap().success());
    let made = attempt(&good);
    assert!(made.status.success(), "{}", said(&made));
    // Whatever the umask, `standby token` makes the file that its output goes to a private one.
    let redirected = place.path("redirected");
    let line = format!(
        "umask 022; {} standby token --name east -D {} > {}",
        place.programs.standfast.display(),
        south.directory.display(),
        redirected.display()
    );
    assert!(Command::new("sh").args(["-c", &line]).status().unwrap().success());
    assert_eq!(std::fs::metadata(&redirected).unwrap().mode() & 0o777, 0o600);
    assert!(std::fs::read_to_string(&redirected).unwrap().starts_with("sft1."));
}
