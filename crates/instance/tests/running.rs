//! An instance in each of its roles and on the way between them, in this process, with real files and connections.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue fails")]

mod common;

use common::{Site, WAIT, captured, database, insert, refusal, rows};
use standfast_environment::config::settings::{CONFIG_FILE, Config, DestinationConfig};
use standfast_instance::role::running::Mode;
use standfast_instance::role::running::role_change::FailoverOptions;
use standfast_testkit::{TempDir, wait_until};
use standfast_transport::protection::{ProtectionLevel, ProtectionMode};
use std::path::Path;
use std::time::Duration;

fn destination(name: &str, address: &str) -> DestinationConfig {
    let text =
        format!("[[destination]]\nname = \"{name}\"\naddress = \"{address}\"\nmode = \"sync-affirm\"\n");
    Config::parse(&text, Path::new(CONFIG_FILE)).unwrap().destinations[0].clone()
}

#[test]
fn primary_serves_a_database_and_finds_it_again_after_a_clean_stop() {
    let place = TempDir::new("running-primary").unwrap();
    let (site, path) = (Site::init(&place, "north"), database(&place));
    let running = site.start().unwrap();
    running.protect(&path, None).unwrap();
    let before = captured(&running);
    // Without the VFS: the instance finds the commit by itself.
    insert(&path);
    wait_until("the commit is in the redo", WAIT, || captured(&running) > before);
    assert_eq!(running.checkpoint().unwrap(), Vec::<String>::new());
    let sequence = running.switch_logfile().unwrap();
    assert_eq!(running.switch_logfile().unwrap(), sequence + 1);
    running.stop().unwrap();
    assert!(site.environment().control().clean);
    let running = site.start().unwrap();
    assert_eq!(running.environment.control().databases.len(), 1);
    insert(&path);
    running.stop().unwrap();
    assert_eq!(rows(&path), 2);
}

#[test]
fn maximum_protection_needs_a_synchronised_destination() {
    let place = TempDir::new("running-protection").unwrap();
    let running = Site::init(&place, "north").start().unwrap();
    let (maximum, before) = (ProtectionMode::MaximumProtection, running.protection().0);
    assert!(refusal(running.set_protection_mode(maximum)).contains("needs a destination with SYNC AFFIRM"));
    // Nothing listens there.
    running.set_destination(destination("south", "127.0.0.1:1")).unwrap();
    assert!(refusal(running.set_protection_mode(maximum)).contains("is synchronised now"));
    assert_eq!(running.protection().0, before);
    running.set_protection_mode(ProtectionMode::MaximumAvailability).unwrap();
    let (mode, level) = running.protection();
    assert_eq!(mode, ProtectionMode::MaximumAvailability);
    assert_ne!(level, Some(ProtectionLevel::MaximumAvailability), "no destination protects commits");
    running.set_protection_mode(ProtectionMode::MaximumPerformance).unwrap();
    assert_eq!(running.environment.control().protection_mode, ProtectionMode::MaximumPerformance);
    running.stop().unwrap();
}

#[test]
fn destinations_are_changed_in_the_file_first_or_not_at_all() {
    let place = TempDir::new("running-destinations").unwrap();
    let site = Site::init(&place, "north");
    let running = site.start().unwrap();
    running.set_destination(destination("south", "127.0.0.1:1")).unwrap();
    let named = || Config::load(&site.directory).unwrap().destinations.len();
    assert_eq!((named(), running.configured().len()), (1, 1));
    let wrong = DestinationConfig { net_timeout_ms: 0, ..destination("west", "127.0.0.1:2") };
    assert!(running.set_destination(wrong).is_err());
    assert!(refusal(running.remove_destination("east")).contains("no destination east"));
    assert_eq!((named(), running.configured().len()), (1, 1));
    running.remove_destination("south").unwrap();
    assert_eq!((named(), running.configured().len()), (0, 0));
    running.stop().unwrap();
}

#[test]
fn standby_takes_over_with_every_commit_and_fences_the_old_primary() {
    let place = TempDir::new("running-failover").unwrap();
    let (north, path) = (Site::init(&place, "north"), database(&place));
    let primary = north.start().unwrap();
    primary.protect(&path, None).unwrap();
    let south = Site::standby(&place, "south", &primary);
    let standby = south.start().unwrap();
    let refused = refusal(standby.switch_logfile());
    assert!(refused.contains("is a standby") && refused.contains("standfast failover"), "{refused}");
    primary.set_destination(destination("south", &standby.listening().unwrap())).unwrap();
    let before = captured(&primary);
    insert(&path);
    wait_until("the commit is in the redo", WAIT, || captured(&primary) > before);
    wait_until("the standby has applied the commit", WAIT, || match &*standby.mode() {
        Mode::Standby(standby) => standby.standby.shared().applied() >= captured(&primary),
        _ => false,
    });
    assert!(
        refusal(primary.failover(FailoverOptions {
            timeout: Duration::ZERO,
            force: true,
            ..FailoverOptions::default()
        }))
        .contains("is the primary already")
    );

    let taken = standby
        .failover(FailoverOptions { timeout: Duration::ZERO, force: true, ..FailoverOptions::default() })
        .unwrap();
    assert!(taken.offline.is_empty() && taken.differing.is_empty());
    let record = standby.environment.control().databases[0].clone();
    assert_eq!(rows(&record.path), 1);
    assert_eq!(standby.environment.control().incarnation().number, 2);
    // The sender of the old primary meets the new one.
    wait_until("the old primary is fenced", WAIT, || matches!(&*primary.mode(), Mode::Fenced(_)));
    assert!(refusal(primary.checkpoint()).contains("another one has taken over"));
    primary.stop().unwrap();
    assert!(refusal(north.start()).contains("standfast fence lift"));
    standby.stop().unwrap();
    let again = south.start().unwrap();
    assert!(again.primary().is_some());
    again.stop().unwrap();
}
