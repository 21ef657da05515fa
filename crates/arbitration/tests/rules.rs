//! Each rule of fast-start failover by itself; `verify/voices` runs them against each other.

use standfast_arbitration::Settings;
use standfast_arbitration::arbiter::{Answer, Ask, Replace};
use standfast_arbitration::primary::{Candidate, Observed, Order, PrimaryRules, Required, View};
use standfast_arbitration::record::{Incarnation, Kept, Record, Standing, Version};
use standfast_arbitration::register::Register;
use standfast_arbitration::seen::{GoneBack, Seen};
use standfast_arbitration::target::{self, NotNow, TargetRules};
use standfast_types::{IncarnationId, Scn};
use std::time::Duration;

const SETTINGS: Settings = Settings {
    threshold: Duration::from_secs(10),
    ping_interval: Duration::from_secs(1),
    primary_shutdown: true,
    observer_override: false,
};

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn incarnation(number: u32) -> Incarnation {
    Incarnation { number: number as _, id: IncarnationId([number as u8; 8]) }
}

fn synchronized(target: &str) -> Standing {
    Standing::Synchronized { target: target.into() }
}

/// The place of the primary, given to its target.
fn over(by: &str) -> Standing {
    Standing::FailedOver { by: by.into(), has_all: true }
}

fn record(standing: Standing) -> Record {
    Record {
        serial: 5,
        primary: "alpha".into(),
        incarnation: incarnation(1),
        standing,
        candidates: ["alpha", "beta", "gamma"].map(str::to_owned).to_vec(),
        acknowledged: Scn(100),
    }
}

fn is(standing: Standing, version: &str) -> Answer {
    let kept = Kept { version: Version(version.into()), record: record(standing) };
    Answer::Is { kept: Some(kept), votes: true }
}

/// These members are required, and the record names one of them.
fn named(names: &[&str]) -> Required {
    Required { members: names.iter().map(|name| (*name).to_owned()).collect(), is_named: !names.is_empty() }
}

/// These members are required, and the record names none of them for certain.
fn unnamed(names: &[&str]) -> Required {
    Required { is_named: false, ..named(names) }
}

/// A candidate that commits wait for and that has everything.
fn good(name: &str) -> Candidate {
    Candidate { name: name.into(), in_step: true, late: false, hardened: Scn(1_000) }
}

fn late(name: &str) -> Candidate {
    Candidate { in_step: false, late: true, ..good(name) }
}

fn sees(candidates: &[Candidate]) -> View {
    View {
        candidates: candidates.to_vec(),
        eligible: ["alpha", "beta", "gamma"].map(str::to_owned).to_vec(),
        acknowledged: Scn(200),
        suspended: false,
    }
}

fn alpha(required: &[&str], has_started: bool) -> PrimaryRules {
    PrimaryRules::new("alpha", incarnation(1), SETTINGS, named(required), Scn(150), has_started)
}

#[track_caller]
fn asks(rules: &mut PrimaryRules, at: u64, view: &View) -> Replace {
    match rules.decide(s(at), view) {
        Order::Ask(Ask::Replace(replace)) => replace,
        other => panic!("{other:?}"),
    }
}

/// The primary, which is certain of its place, has read this record.
fn having_read(required: &[&str], standing: Standing) -> PrimaryRules {
    let mut rules = alpha(required, false);
    assert_eq!(rules.decide(s(0), &sees(&[])), Order::Ask(Ask::Read { follows: None }));
    rules.answered(s(0), is(standing, "v1"));
    rules
}

fn replaced(version: &str) -> Answer {
    Answer::Replaced { version: Version(version.into()) }
}

// The primary.

#[test]
fn member_is_required_before_the_arbiter_hears_that_it_may_take_over() {
    let mut rules = having_read(&[], Standing::Unsynchronized);
    let view = sees(&[good("beta")]);
    assert_eq!(rules.decide(s(1), &view), Order::Require(unnamed(&["beta"])));
    rules.requires(unnamed(&["beta"]));
    let asked = asks(&mut rules, 1, &view);
    assert_eq!((&asked.record.standing, asked.gives_up.len()), (&synchronized("beta"), 0));
    rules.answered(s(1), replaced("v2"));
    assert_eq!(rules.target(), Some("beta"));
    assert_eq!(rules.decide(s(1), &view), Order::Require(named(&["beta"])));
}

#[test]
fn late_target_is_given_up_only_when_the_arbiter_has_agreed() {
    let mut rules = having_read(&["beta"], synchronized("beta"));
    let view = sees(&[late("beta")]);
    // Durable first: after a start it does not count as named any more.
    assert_eq!(rules.decide(s(1), &view), Order::Require(unnamed(&["beta"])));
    rules.requires(unnamed(&["beta"]));
    let asked = asks(&mut rules, 1, &view);
    assert_eq!(asked.record.standing, Standing::Unsynchronized);
    assert_eq!(asked.gives_up, ["beta"]);
    rules.answered(s(1), Answer::Nothing);
    assert!(matches!(rules.decide(s(1), &view), Order::Wait(_)));
    assert_eq!(rules.required(), &unnamed(&["beta"]), "not because it may have agreed");
    // Its answer got lost: the record says so, but only an answer to a request ends all earlier ones.
    assert_eq!(rules.decide(s(2), &view), Order::Ask(Ask::Read { follows: None }));
    rules.answered(s(2), is(Standing::Unsynchronized, "v2"));
    asks(&mut rules, 3, &view);
    rules.answered(s(3), replaced("v3"));
    assert_eq!(rules.decide(s(3), &view), Order::Require(named(&[])));
}

#[test]
fn another_target_takes_its_place_without_a_time_in_between() {
    let mut rules = having_read(&["beta"], synchronized("beta"));
    let view = sees(&[late("beta"), good("gamma")]);
    assert_eq!(rules.decide(s(1), &view), Order::Require(named(&["beta", "gamma"])));
    rules.requires(named(&["beta", "gamma"]));
    let asked = asks(&mut rules, 1, &view);
    assert_eq!((asked.record.standing, asked.gives_up), (synchronized("gamma"), vec!["beta".to_owned()]));
    rules.answered(s(1), replaced("v2"));
    assert_eq!(rules.decide(s(1), &view), Order::Require(named(&["gamma"])));
}

#[test]
fn set_that_grows_is_not_taken_back_by_an_answer_from_before() {
    let mut rules = having_read(&["beta"], synchronized("beta"));
    asks(&mut rules, 1, &sees(&[good("beta")]));
    rules.answered(s(1), replaced("v2"));
    let view = sees(&[late("beta"), good("gamma")]);
    assert_eq!(rules.decide(s(1), &view), Order::Require(named(&["beta", "gamma"])));
    rules.requires(named(&["beta", "gamma"]));
    assert_eq!(asks(&mut rules, 1, &view).record.standing, synchronized("gamma"));
}

#[test]
fn standby_that_lacks_what_was_acknowledged_does_not_become_the_target() {
    let mut rules = having_read(&[], Standing::Unsynchronized);
    let lacking = Candidate { hardened: Scn(199), ..good("beta") };
    assert_eq!(asks(&mut rules, 1, &sees(&[lacking])).record.standing, Standing::Unsynchronized);
    rules.answered(s(1), replaced("v2"));
    let has_all = Candidate { hardened: Scn(200), ..good("beta") };
    assert_eq!(rules.decide(s(1), &sees(&[has_all])), Order::Require(unnamed(&["beta"])));
}

#[test]
fn redo_that_was_there_at_the_opening_counts_as_acknowledged() {
    let mut rules = alpha(&[], false);
    let behind = Candidate { hardened: Scn(149), ..good("beta") };
    let nothing_yet = View { acknowledged: Scn(0), ..sees(&[behind]) };
    assert_eq!(rules.decide(s(0), &nothing_yet), Order::Ask(Ask::Read { follows: None }));
    rules.answered(s(0), is(Standing::Unsynchronized, "v1"));
    let asked = asks(&mut rules, 1, &nothing_yet);
    assert_eq!((asked.record.standing, asked.record.acknowledged), (Standing::Unsynchronized, Scn(150)));
}

#[test]
fn started_primary_acknowledges_nothing_before_the_arbiter_has_confirmed_it() {
    let mut rules = alpha(&[], true);
    assert_eq!(rules.decide(s(0), &sees(&[])), Order::Ask(Ask::Read { follows: None }));
    rules.answered(s(0), is(Standing::Unsynchronized, "v1"));
    assert!(!rules.may_acknowledge(), "what it has read may be old");
    // A member that it required now would look like a confirmation to the next start.
    let asked = asks(&mut rules, 1, &sees(&[good("beta")]));
    assert_eq!((asked.record.standing, asked.confirms), (Standing::Unsynchronized, true));
    rules.answered(s(1), replaced("v2"));
    assert!(rules.may_acknowledge());
    assert!(alpha(&["beta"], true).may_acknowledge(), "its target has to agree to each commit");
    assert!(alpha(&[], false).may_acknowledge(), "it was promoted just now");
}

#[test]
fn member_that_the_record_may_not_name_any_more_confirms_nothing_after_a_start() {
    let required = unnamed(&["beta"]);
    let rules = PrimaryRules::new("alpha", incarnation(1), SETTINGS, required, Scn(150), true);
    assert!(
        !rules.may_acknowledge(),
        "it may have asked to continue alone, and another one was given its place"
    );
}

#[test]
fn replaced_primary_acknowledges_nothing_and_only_reads() {
    let mut rules = having_read(&["beta"], over("beta"));
    assert!(!rules.may_acknowledge() && rules.replaced_by().is_some());
    assert!(matches!(rules.decide(s(0), &sees(&[late("beta")])), Order::Wait(_)));
    assert_eq!(rules.decide(s(1), &sees(&[late("beta")])), Order::Ask(Ask::Read { follows: None }));
    // A record of an older incarnation does not replace it.
    let mut newer = PrimaryRules::new("beta", incarnation(2), SETTINGS, named(&[]), Scn(150), false);
    assert_eq!(newer.decide(s(0), &sees(&[])), Order::Ask(Ask::Read { follows: None }));
    newer.answered(s(0), is(over("beta"), "v1"));
    assert!(newer.may_acknowledge());
    assert_eq!(asks(&mut newer, 0, &sees(&[])).record.primary, "beta");
}

#[test]
fn primary_without_target_and_arbiter_stops_after_the_threshold() {
    let mut rules = having_read(&["beta"], synchronized("beta"));
    let view = sees(&[late("beta")]);
    rules.requires(unnamed(&["beta"]));
    asks(&mut rules, 1, &view);
    rules.answered(s(1), Answer::Nothing);
    assert_eq!(rules.observed(), Observed::No);
    assert!(matches!(rules.decide(s(1), &view), Order::Wait(_)));
    assert!(!matches!(rules.decide(s(10), &view), Order::Stop));
    rules.answered(s(10), Answer::Nothing);
    assert_eq!(rules.decide(s(11), &view), Order::Stop);
    // With the target it continues for ever.
    let mut observed_no_more = having_read(&["beta"], synchronized("beta"));
    for second in 1..100 {
        assert_ne!(observed_no_more.decide(s(second), &sees(&[good("beta")])), Order::Stop);
        observed_no_more.answered(s(second), Answer::Nothing);
    }
}

#[test]
fn arbiter_that_can_be_read_and_not_written_does_not_keep_a_primary_from_stopping() {
    let mut rules = having_read(&["beta"], synchronized("beta"));
    let view = sees(&[late("beta")]);
    rules.requires(unnamed(&["beta"]));
    asks(&mut rules, 1, &view);
    rules.answered(s(1), Answer::Nothing);
    for second in 2..11 {
        let order = rules.decide(s(second), &view);
        let answer = match order {
            Order::Ask(Ask::Read { .. }) => is(synchronized("beta"), "v0"),
            Order::Ask(Ask::Replace(_)) => Answer::Nothing,
            Order::Wait(_) => continue,
            other => panic!("{other:?} after {second} s"),
        };
        rules.answered(s(second), answer);
        assert_eq!(rules.observed(), Observed::No);
    }
    assert_eq!(rules.decide(s(12), &view), Order::Stop);
}

#[test]
fn record_of_a_new_beginning_has_a_serial_number_beyond_all_earlier_ones() {
    let mut rules = alpha(&[], false).with_serials_beyond(1_000);
    assert_eq!(rules.decide(s(0), &sees(&[])), Order::Ask(Ask::Read { follows: None }));
    // Emptied: members that have seen up to 999 trust it.
    rules.answered(s(0), Answer::Is { kept: None, votes: true });
    assert_eq!(asks(&mut rules, 0, &sees(&[])).record.serial, 1_001);
    rules.answered(s(0), replaced("v1"));
    assert_eq!(asks(&mut rules, 1, &sees(&[])).record.serial, 1_002);
}

#[test]
fn arbiter_that_does_not_decide_yet_gets_a_report_and_nothing_is_given_up() {
    let mut rules = alpha(&["beta", "gamma"], true);
    assert_eq!(rules.decide(s(0), &sees(&[])), Order::Ask(Ask::Read { follows: None }));
    rules.answered(s(0), Answer::Is { kept: None, votes: false });
    let view = sees(&[late("beta"), late("gamma")]);
    let asked = asks(&mut rules, 0, &view);
    assert_eq!((asked.record.standing, asked.gives_up), (synchronized("beta"), vec![]));
    assert_eq!(asked.required, ["beta", "gamma"]);
    rules.answered(s(0), replaced("v1"));
    assert_eq!(rules.required(), &named(&["beta", "gamma"]));
}

#[test]
fn no_member_may_take_over_while_the_roles_change_by_command() {
    let mut rules = having_read(&["beta"], synchronized("beta"));
    let suspended = View { suspended: true, ..sees(&[good("beta")]) };
    assert_eq!(rules.decide(s(1), &suspended), Order::Require(unnamed(&["beta"])));
    rules.requires(unnamed(&["beta"]));
    assert_eq!(asks(&mut rules, 1, &suspended).record.standing, Standing::Unsynchronized);
    assert!(!rules.is_alone(&suspended));
    rules.answered(s(1), replaced("v2"));
    assert_eq!(rules.decide(s(1), &suspended), Order::Require(named(&[])));
    rules.requires(named(&[]));
    assert!(rules.is_alone(&suspended));
    let with_another = View { eligible: vec!["alpha".into()], ..suspended };
    assert!(!rules.is_alone(&with_another), "the arbiter would refuse another successor");
}

// The target.

fn beta_sees(heard: u64) -> target::View {
    target::View {
        incarnation: incarnation(1),
        heard: s(heard),
        end: Scn(100),
        is_able: true,
        is_enabled_there: false,
        order: None,
    }
}

/// `beta`, which has read this record at the start and at every second since.
fn beta(standing: Standing, until: u64) -> TargetRules {
    let mut rules = TargetRules::new("beta", SETTINGS, s(0));
    for second in 0..=until {
        if let target::Order::Ask(Ask::Read { follows }) = rules.decide(s(second), &beta_sees(second)) {
            assert_eq!(follows, Some(incarnation(1)));
            rules.answered(s(second), is(standing.clone(), "v1"));
        }
    }
    rules
}

#[test]
fn target_takes_over_when_primary_is_silent_to_it_and_to_the_arbiter() {
    let mut rules = beta(synchronized("beta"), 9);
    assert_eq!(rules.takes_over(s(9), &beta_sees(0)), Err(NotNow::PrimaryHeard), "for 9 s to the arbiter");
    assert_eq!(rules.takes_over(s(12), &beta_sees(3)), Err(NotNow::PrimaryHeard), "for 9 s to itself");
    let target::Order::Ask(Ask::Replace(asked)) = rules.decide(s(13), &beta_sees(3)) else { panic!() };
    assert_eq!(asked.record.standing, over("beta"));
    assert_eq!(asked.expected, Some(Version("v1".into())));
    rules.answered(s(13), replaced("v2"));
    assert_eq!(rules.decide(s(13), &beta_sees(3)), target::Order::TakeOver { has_all: true });
}

#[test]
fn report_of_the_primary_to_the_arbiter_begins_the_threshold_again() {
    let mut rules = beta(synchronized("beta"), 9);
    rules.decide(s(10), &beta_sees(9));
    rules.answered(s(10), is(synchronized("beta"), "v2"));
    assert_eq!(rules.takes_over(s(19), &beta_sees(0)), Err(NotNow::PrimaryHeard));
    assert!(rules.takes_over(s(20), &beta_sees(0)).is_ok());
}

#[test]
fn place_that_was_given_long_ago_is_taken_only_from_a_silent_primary_by_a_member_with_everything() {
    let mut rules = beta(over("beta"), 9);
    let is_taken = |order: target::Order| order == target::Order::TakeOver { has_all: true };
    assert!(
        !is_taken(rules.decide(s(9), &beta_sees(5))),
        "it is heard again, and may have been let continue"
    );
    let enabled = target::View { is_enabled_there: true, ..beta_sees(5) };
    assert!(is_taken(rules.clone().decide(s(9), &enabled)));
    let lacking = target::View { end: Scn(99), ..beta_sees(0) };
    assert!(!is_taken(rules.decide(s(10), &lacking)));
    let unable = target::View { is_able: false, ..beta_sees(0) };
    assert!(!is_taken(rules.decide(s(10), &unable)));
    assert!(is_taken(rules.decide(s(10), &beta_sees(0))));
}

#[test]
fn observer_override_does_not_ask_whether_the_target_hears_the_primary() {
    let mut rules = beta(synchronized("beta"), 9);
    rules.set_settings(Settings { observer_override: true, ..SETTINGS });
    assert!(rules.takes_over(s(10), &beta_sees(10)).is_ok());
}

#[test]
fn only_the_target_of_this_incarnation_that_has_everything_takes_over() {
    for standing in [Standing::Unsynchronized, synchronized("gamma"), over("gamma")] {
        let rules = beta(standing, 9);
        assert_eq!(rules.takes_over(s(30), &beta_sees(0)), Err(NotNow::NotTarget));
    }
    let rules = beta(synchronized("beta"), 9);
    let view = beta_sees(0);
    let other = target::View { incarnation: incarnation(2), ..view.clone() };
    assert_eq!(rules.takes_over(s(30), &other), Err(NotNow::NotTarget));
    let lacking = target::View { end: Scn(99), ..view.clone() };
    assert_eq!(rules.takes_over(s(30), &lacking), Err(NotNow::LacksRedo));
    let unable = target::View { is_able: false, ..view };
    assert_eq!(rules.takes_over(s(30), &unable), Err(NotNow::NotAble));
}

#[test]
fn order_of_an_operator_counts_at_once_for_the_target_and_else_only_for_a_silent_primary_that_was_alone() {
    let ordered = target::View { order: Some(1), ..beta_sees(9) };
    assert!(beta(synchronized("beta"), 9).takes_over(s(9), &ordered).is_ok());
    let alone = beta(Standing::Unsynchronized, 9);
    assert_eq!(alone.takes_over(s(9), &ordered), Err(NotNow::PrimaryHeard));
    assert!(alone.takes_over(s(10), &ordered).is_ok());
    for other in [synchronized("gamma"), over("gamma")] {
        assert_eq!(beta(other, 9).takes_over(s(30), &ordered), Err(NotNow::NotTarget));
    }
    let has_all = |rules: TargetRules, end: u64| {
        let view = target::View { end: Scn(end), ..ordered.clone() };
        matches!(
            rules.takes_over(s(30), &view).unwrap().record.standing,
            Standing::FailedOver { has_all: true, .. }
        )
    };
    // The primary is back: it reports after the order, which is not meant for that.
    let mut order = beta(Standing::Unsynchronized, 5);
    assert!(matches!(order.decide(s(5), &ordered), target::Order::Wait(_)));
    assert!(matches!(order.decide(s(6), &ordered), target::Order::Ask(Ask::Read { .. })));
    order.answered(s(6), is(Standing::Unsynchronized, "v2"));
    assert_eq!(order.takes_over(s(60), &ordered), Err(NotNow::PrimaryHeard));
    let another = target::View { order: Some(2), ..ordered.clone() };
    order.decide(s(60), &another);
    assert!(order.takes_over(s(60), &another).is_ok());
    assert!(has_all(beta(synchronized("beta"), 9), 100));
    assert!(!has_all(beta(synchronized("beta"), 9), 99), "it lacks what was acknowledged");
    assert!(!has_all(beta(Standing::Unsynchronized, 9), 100), "the primary acknowledged alone");
}

// The observer.

fn write(
    register: &mut Register,
    from: &str,
    standing: Standing,
    required: &[&str],
    gives_up: &[&str],
) -> Answer {
    let follows = standing.is_given().then_some(incarnation(1));
    let Answer::Is { kept, .. } = register.answer(from, &Ask::Read { follows }).answer else { panic!() };
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let replace = Replace {
        expected: kept.map(|kept| kept.version),
        record: record(standing),
        required: names(required),
        gives_up: names(gives_up),
        confirms: false,
    };
    register.answer(from, &Ask::Replace(replace)).answer
}

fn is_carried_out(answer: &Answer) -> bool {
    matches!(answer, Answer::Replaced { .. })
}

fn follows(register: &mut Register, name: &str) {
    register.answer(name, &Ask::Read { follows: Some(incarnation(1)) });
}

#[test]
fn observer_decides_once_primary_and_all_that_it_needs_have_told_it_where_they_stand() {
    let mut register = Register::new(1, Some(record(synchronized("gamma"))));
    assert!(!register.votes());
    assert!(!is_carried_out(&write(&mut register, "alpha", Standing::Unsynchronized, &["beta"], &["beta"])));
    assert!(is_carried_out(&write(&mut register, "alpha", synchronized("beta"), &["beta", "gamma"], &[])));
    follows(&mut register, "beta");
    assert!(!register.votes(), "`gamma` may have been given the place before");
    assert!(!is_carried_out(&write(&mut register, "beta", over("beta"), &[], &[])));
    follows(&mut register, "gamma");
    assert!(register.votes());
    assert!(is_carried_out(&write(
        &mut register,
        "alpha",
        synchronized("beta"),
        &["beta", "gamma"],
        &["gamma"]
    )));
}

#[test]
fn observer_confirms_a_primary_only_if_no_candidate_can_have_been_given_its_place() {
    let asks_for = |register: &mut Register| {
        let Answer::Is { kept, .. } = register.answer("alpha", &Ask::Read { follows: None }).answer else {
            panic!()
        };
        let replace = Replace {
            expected: kept.map(|kept| kept.version),
            record: record(Standing::Unsynchronized),
            required: vec![],
            gives_up: vec![],
            confirms: true,
        };
        is_carried_out(&register.answer("alpha", &Ask::Replace(replace)).answer)
    };
    let mut register = Register::new(1, None);
    follows(&mut register, "beta");
    assert!(!asks_for(&mut register), "`gamma` may have been given it, by an observer that has forgotten");
    follows(&mut register, "gamma");
    assert!(asks_for(&mut register));
    // One that was certain in this run needs no witness.
    let mut register = Register::new(1, None);
    assert!(is_carried_out(&write(&mut register, "alpha", Standing::Unsynchronized, &[], &[])));
    assert!(asks_for(&mut register));
}

#[test]
fn place_of_the_primary_is_given_once_and_only_to_its_target_or_to_a_candidate_if_there_is_none() {
    let ordered = |by: &str| Standing::FailedOver { by: by.into(), has_all: false };
    let mut register = Register::new(1, None);
    assert!(!is_carried_out(&write(&mut register, "beta", over("beta"), &[], &[])), "of no primary");
    assert!(is_carried_out(&write(&mut register, "alpha", Standing::Unsynchronized, &[], &[])));
    for (from, by) in [("delta", "delta"), ("beta", "gamma")] {
        assert!(!is_carried_out(&write(&mut register, from, ordered(by), &[], &[])), "{from} for {by}");
    }
    assert!(!is_carried_out(&write(&mut register, "beta", over("beta"), &[], &[])), "it is no target");
    assert!(!is_carried_out(&write(&mut register, "delta", synchronized("delta"), &[], &[])));
    let mut alone = register.clone();
    assert!(is_carried_out(&write(&mut alone, "beta", ordered("beta"), &[], &[])));
    assert!(is_carried_out(&write(&mut register, "alpha", synchronized("beta"), &["beta"], &[])));
    follows(&mut register, "beta");
    assert!(
        !is_carried_out(&write(&mut register, "gamma", ordered("gamma"), &[], &[])),
        "beta has everything"
    );
    assert!(is_carried_out(&write(&mut register, "beta", over("beta"), &[], &[])));
    assert!(!is_carried_out(&write(&mut register, "gamma", ordered("gamma"), &[], &[])));
    assert!(!is_carried_out(&write(&mut register, "alpha", synchronized("beta"), &["beta"], &[])));
}

#[test]
fn record_is_replaced_only_by_a_member_that_knows_its_version() {
    let mut register = Register::new(1, None);
    write(&mut register, "alpha", Standing::Unsynchronized, &[], &[]);
    for expected in [None, Some(Version("0000000000000001-0".into()))] {
        let replace = Replace {
            expected,
            record: record(synchronized("beta")),
            required: vec![],
            gives_up: vec![],
            confirms: false,
        };
        assert!(!is_carried_out(&register.answer("alpha", &Ask::Replace(replace)).answer));
    }
    assert_eq!(register.record().unwrap().standing, Standing::Unsynchronized);
}

#[test]
fn reports_that_change_nothing_are_not_stored() {
    let mut register = Register::new(1, None);
    let mut stores = |standing: Standing| {
        let Answer::Is { kept, .. } = register.answer("alpha", &Ask::Read { follows: None }).answer else {
            panic!()
        };
        let replace = Replace {
            expected: kept.map(|kept| kept.version),
            record: record(standing),
            required: vec![],
            gives_up: vec![],
            confirms: false,
        };
        register.answer("alpha", &Ask::Replace(replace)).store
    };
    assert!(stores(Standing::Unsynchronized));
    assert!(!stores(Standing::Unsynchronized));
    assert!(stores(synchronized("beta")));
    let mut fewer = record(synchronized("beta"));
    fewer.candidates.pop();
    let version = match register.answer("alpha", &Ask::Read { follows: None }).answer {
        Answer::Is { kept, .. } => kept.map(|kept| kept.version),
        _ => None,
    };
    let replace =
        Replace { expected: version, record: fewer, required: vec![], gives_up: vec![], confirms: false };
    assert!(register.answer("alpha", &Ask::Replace(replace)).store, "who may take over must last");
}

#[test]
fn store_that_has_gone_back_is_trusted_no_more() {
    let at = |serial: u64, standing: Standing| Record { serial, ..record(standing) };
    let target = synchronized("beta");
    let mut seen = Seen::new(0, incarnation(1).number);
    assert_eq!(seen.take(None), Ok(None), "nothing yet");
    assert_eq!(seen.take(Some(&at(1, target.clone()))), Ok(Some(1)), "durable before it counts");
    assert_eq!(seen.take(Some(&at(2, target.clone()))), Ok(None), "says the same");
    assert_eq!(seen.take(Some(&at(2, target.clone()))), Ok(None));
    assert_eq!(seen.take(Some(&at(3, Standing::Unsynchronized))), Ok(Some(3)));
    assert_eq!(seen.take(Some(&at(2, target.clone()))), Err(GoneBack { to: 2, seen: 3 }));
    assert_eq!(seen.take(None), Err(GoneBack { to: 0, seen: 3 }));
    assert_eq!(seen.take(Some(&at(4, Standing::Unsynchronized))), Ok(None), "it has gone on");
    // After a start only what is durable is known.
    let mut again = Seen::new(3, incarnation(1).number);
    assert_eq!(again.take(Some(&at(2, target.clone()))), Err(GoneBack { to: 2, seen: 3 }));
    assert_eq!(again.take(Some(&at(5, target.clone()))), Ok(Some(5)));
    // A member that had seen less took over: it is heard, so the old primary acknowledges nothing more.
    let given = at(2, over("beta"));
    assert_eq!(again.clone().take(Some(&given)), Ok(Some(2)));
    let newer = Record { incarnation: incarnation(2), ..at(4, target) };
    assert_eq!(again.take(Some(&newer)), Ok(Some(4)));
    assert!(again.take(Some(&given)).is_err(), "of an older incarnation");
}
