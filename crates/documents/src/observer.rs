//! What an observer of fast-start failover reports.

document! {
    /// State of an observer: the answer to `standfast dg --json "show observer"`.
    ObserverState {
        name: String,
        /// Whether it decides: primary and target have reported where they stand since it started.
        votes: bool,
        /// `None`: no primary has reported to it.
        record: ObserverRecord,
        heard: Vec<HeardMember>,
    }
}

document! {
    /// Who is primary, and who may take over.
    ObserverRecord {
        primary: String,
        incarnation: u64,
        /// `unsynchronized`, `synchronized` or `failed_over`.
        standing: String,
        /// All redo before it was acknowledged when the primary last changed the record.
        acknowledged_scn: u64,
    }
    of_a_role {
        /// The member that may take over.
        target: String,
        /// The member that takes over, or has.
        by: String,
        /// Whether that member has all that was acknowledged.
        has_all: bool,
    }
}

document! {
    /// A member that asks the observer.
    HeardMember {
        name: String,
        /// Milliseconds since it last asked.
        ago_ms: u64,
    }
}

/// The part of an observer's answer that only observers have.
#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct Observed {
    #[serde(deserialize_with = "crate::lenient")]
    observer: Option<ObserverState>,
}

impl ObserverState {
    /// Reads it from the answer of an instance; `None`: that is no observer.
    ///
    /// # Errors
    /// When the text is not JSON.
    pub fn in_observation(text: &str) -> Result<Option<ObserverState>, serde_json::Error> {
        Ok(serde_json::from_str::<Observed>(text)?.observer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_observer_reports_one() {
        let state = |text: &str| ObserverState::in_observation(text).unwrap();
        assert_eq!(state(r#"{"status": {"name": "oslo"}}"#), None);
        let observed = state(r#"{"status": {}, "observer": {"name": "tokyo", "votes": 1, "record": null}}"#);
        assert_eq!(observed, Some(ObserverState { name: Some("tokyo".into()), ..ObserverState::default() }));
        assert!(ObserverState::in_observation("observer").is_err());
    }
}
