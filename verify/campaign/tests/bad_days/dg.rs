//! `standfast dg`: every command, with wrong input, at the wrong member, and with a member that is down.

use crate::shared_configuration::{await_configuration, family};
use crate::support::{INSERT, Place, await_rows, await_status, must, refuses, start};
use standfast_campaign::instance::Instance;

/// What the command prints on standard output; its exit code is this one.
#[track_caller]
fn printed(instance: &Instance, command: &str, code: i32) -> String {
    let finished = instance.run(&["dg", command]).unwrap();
    assert_eq!(finished.code, code, "{command}: {}{}", finished.stdout, finished.stderr);
    finished.stdout
}

#[test]
fn commands_show_and_change_the_configuration_of_all_members() {
    let place = Place::new("dg");
    let (south, north, east, database) = family(&place);
    let shown = printed(&south, "show configuration lag verbose", 3);
    for line in [
        "  Protection Mode: MaxAvailability\n",
        "  south - Primary database\n",
        "    north - Physical standby database\n      Transport Lag:      0.0 seconds\n",
        "    BystandersFollowRoleChange  = 'ALL'\n",
        // The instances of this test use plain TCP.
        "Configuration Status:\nWARNING\n",
    ] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    // A change is shown by every member, and holds for the stream.
    printed(&south, "EDIT DATABASE 'east' SET PROPERTY LogXptMode='SYNC';", 0);
    await_configuration(&south, &north);
    for instance in [&south, &north] {
        assert_eq!(printed(instance, "show database east LogXptMode", 0), "SYNC\n");
    }
    await_status(&south, "commits wait for both", |status| {
        let all = status.json()["destinations"].as_array().cloned().unwrap_or_default();
        all.len() == 2 && all.iter().all(|at| at["required"] == true)
    });
    printed(&south, "edit database east reset property ReopenSecs", 0);
    assert_eq!(printed(&south, "show database east ReopenSecs", 0), "1\n");
    printed(&south, "edit configuration set property DrainTimeout = 25", 0);
    assert_eq!(printed(&south, "show configuration DrainTimeout", 0), "25\n");
    assert!(
        std::fs::read_to_string(south.directory.join("standfast.toml"))
            .unwrap()
            .contains("drain_timeout_s = 25")
    );
    // Disabled, it is no finding; enabled, it has what it lacked.
    printed(&south, "disable database east", 0);
    assert!(printed(&south, "show configuration", 3).contains("east - Physical standby database (disabled)"));
    place.application(&database).run(INSERT);
    printed(&south, "enable database east", 0);
    await_rows(&east.standby_database("app.db"), 2);
    printed(&east, "edit database east set state = APPLY-OFF", 0);
    await_status(&south, "it knows", |status| status.json()["destinations"][1]["stopped_total"] == 1);
    assert!(printed(&south, "show configuration", 3).contains("Error: ORA-16766: redo is not applied"));
    printed(&east, "edit database east set state = APPLY-ON", 0);
    printed(&south, "edit configuration set protection mode as MaxProtection", 0);
    assert!(printed(&south, "show configuration", 3).contains("Protection Mode: MaxProtection"));
    printed(&south, "edit configuration set protection mode as MaxAvailability", 0);
    let file = place.path("configuration.json");
    printed(&south, &format!("export configuration to '{}'", file.display()), 0);
    let exported: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(exported["standbys"][1]["name"], "east", "{exported}");
    printed(&south, &format!("export configuration to '{}'", file.display()), 1);
    // Out of the configuration and into it again.
    printed(&south, "remove database east", 0);
    assert!(!printed(&south, "show configuration", 3).contains("east"));
    printed(&south, &format!("add database east as connect identifier is {}", east.address), 0);
    assert!(printed(&south, "show configuration", 3).contains("east - Physical"));
}

#[test]
fn wrong_commands_and_wrong_members_change_nothing_and_get_a_remedy() {
    let place = Place::new("dg-wrong");
    let (south, north, _east, _) = family(&place);
    let before = await_configuration(&south, &north);
    for (command, code, words) in [
        ("shwo configuration", 2, &["`shwo`", "`standfast dg help` lists"][..]),
        ("show database", 2, &["the name of a member is missing"]),
        ("show database west", 2, &["no member `west`", "south, north, east"]),
        ("show database north NetTimeouts", 2, &["no property NetTimeouts", "NetTimeout"]),
        (
            "edit database north set property NetTimeout = soon",
            2,
            &["NetTimeout = soon", "0.1 to 1200 seconds"],
        ),
        ("edit database north set property NetTimeout = 0.01", 2, &["net_timeout_ms = 10", "100 to 1200000"]),
        ("edit database north set property LogXptMode = SYNCH", 2, &["SYNC, FASTSYNC or ASYNC"]),
        ("edit database south set property LogXptMode = SYNC", 3, &["`south` is the primary"]),
        ("edit database west set property LogXptMode = SYNC", 2, &["no member `west`"]),
        ("edit configuration set property DrainTimeout = 9999", 2, &["drain_timeout_s = 9999", "0 to 3600"]),
        ("enable database west", 2, &["no member `west`"]),
        ("remove database west", 2, &["no member `west`"]),
        ("add database west as connect identifier is 127.0.0.1:1", 3, &["cannot be reached"]),
        ("edit database north set state = APPLY-OFF", 3, &["this is `south`", "at `north`: `standfast dg"]),
        ("failover to north", 3, &["this is `south`", "at `north`: `standfast dg failover to north`"]),
        ("switchover to west", 2, &["no member `west`"]),
        ("reinstate database north", 3, &["standfast reinstate --yes"]),
    ] {
        refuses(&south, &["dg", command], code, words);
    }
    // Only the primary changes it; the others name it.
    for command in [
        "edit database east set property NetTimeout = 3",
        "edit configuration set property DrainTimeout = 3",
        "edit configuration set protection mode as MaxPerformance",
        "switchover to east",
    ] {
        refuses(&north, &["dg", command], 3, &["hint: "]);
    }
    refuses(
        &north,
        &["dg", "edit database east set property NetTimeout = 3"],
        3,
        &["give the command at `south`"],
    );
    refuses(&north, &["dg", "failover to north"], 3, &["`south`, is alive"]);
    assert_eq!(await_configuration(&south, &north), before, "nothing has changed");
    // Without a stream the primary is asked.
    printed(&south, "disable database north", 0);
    refuses(&north, &["dg", "failover to north"], 3, &["`south`, is alive"]);
    printed(&south, "enable database north", 0);
    let shown = printed(&north, "show configuration", 3);
    assert!(!shown.contains("SUCCESS"), "a standby does not know how the others are: {shown}");
}

#[test]
fn member_that_is_down_is_an_error_and_its_properties_can_be_changed() {
    let place = Place::new("dg-down");
    let (mut south, north, mut east, database) = family(&place);
    let ready = printed(&south, "validate database verbose north", 3);
    for line in [
        "Ready for Switchover:  Yes\n",
        "Yes; no acknowledged commit would be lost\n",
        "none: connections are plain TCP",
    ] {
        assert!(ready.contains(line), "{line}: {ready}");
    }
    east.kill();
    await_status(&south, "it is gone", |status| status.json()["destinations"][1]["state"] == "connecting");
    let shown = printed(&south, "show configuration", 3);
    assert!(shown.contains("Error: ORA-16778: not connected") && shown.ends_with("ERROR\n"), "{shown}");
    let report = printed(&south, "validate database east", 3);
    assert!(
        report.contains("Ready for Switchover:  No;") && report.contains("Ready for Failover:    No;"),
        "{report}"
    );
    printed(&south, "edit database east set property NetTimeout = 7", 0);
    start(&mut east);
    await_status(&south, "both follow", |status| status.streams() && status.settled());
    await_configuration(&south, &east);
    assert_eq!(printed(&east, "show database east NetTimeout", 0), "7\n");
    // Roles change, also without the primary.
    printed(&south, "switchover to north", 0);
    await_status(&north, "both follow", |status| status.streams() && status.settled());
    await_configuration(&north, &south);
    let mut north = north;
    north.kill();
    printed(&south, "failover to south", 0);
    await_rows(&east.standby_database("app.db"), 1);
    // No commit waits for the old primary, which was a synchronised standby once.
    let mut application = place.application(&database);
    application.run(INSERT);
    await_rows(&east.standby_database("app.db"), 2);
    assert!(!south.alerts().contains("DEGRADED"), "{}", south.alerts());
    start(&mut north);
    await_status(&north, "it is fenced", |status| status.text("/state") == "fenced");
    assert!(printed(&north, "show configuration", 3).contains("ORA-16661"));
    south.kill();
    refuses(&south, &["dg", "show configuration"], 4, &["does not run"]);
}

#[test]
fn script_ends_with_the_first_command_that_fails() {
    let place = Place::new("dg-script");
    let (south, ..) = family(&place);
    let script = place.path("script");
    let commands = "-- a remark\n\nshow configuration\nedit configuration set property DrainTimeout = 30;\nedit nothing\n\
                    edit configuration set property DrainTimeout = 40\n";
    std::fs::write(&script, commands).unwrap();
    let finished = south.run_with_input(&["dg"], &script).unwrap();
    assert_eq!(finished.code, 2, "{}", finished.stderr);
    assert!(finished.stderr.contains("not `nothing`"), "{}", finished.stderr);
    assert_eq!(printed(&south, "show configuration DrainTimeout", 0), "30\n");
    must(&south, &["dg", "exit"]);
}
