//! The output of `standfast status --json`, as far as a campaign needs it.

use crate::{CampaignError, Result};
use serde_json::Value;

#[derive(Clone, Debug)]
pub struct Status(Value);

impl Status {
    /// Parses the text of `standfast status --json`.
    ///
    /// # Errors
    /// When it is not JSON.
    pub fn parse(text: &str) -> Result<Status> {
        serde_json::from_str(text).map(Status).map_err(|error| CampaignError::Unreadable {
            what: "the output of `standfast status --json`".into(),
            detail: error.to_string(),
        })
    }

    pub fn of(document: Value) -> Status {
        Status(document)
    }

    pub fn json(&self) -> &Value {
        &self.0
    }

    pub fn role(&self) -> &str {
        self.text("/role")
    }

    /// Returns the text at a JSON pointer; empty when there is none.
    pub fn text(&self, pointer: &str) -> &str {
        self.0.pointer(pointer).and_then(Value::as_str).unwrap_or("")
    }

    /// Returns the position or count at a JSON pointer; 0 when there is none.
    pub fn number(&self, pointer: &str) -> u64 {
        let value = self.0.pointer(pointer);
        // A position may be written as text, because not every JSON reader keeps 64 bits.
        value.and_then(|value| value.as_u64().or_else(|| value.as_str()?.parse().ok())).unwrap_or(0)
    }

    /// Returns the state of the database `name`.
    pub fn database_state(&self, name: &str) -> &str {
        let databases = self.0["databases"].as_array().into_iter().flatten();
        let named = databases.into_iter().find(|database| database["name"] == name);
        named.and_then(|database| database["state"].as_str()).unwrap_or("")
    }

    /// How often an event was waited for, and the total time in microseconds.
    pub fn waited_for(&self, event: &str) -> (u64, u64) {
        let waits = self.0["waits"].as_array().into_iter().flatten();
        let number = |wait: &Value, key: &str| wait[key].as_u64().unwrap_or(0);
        let found = waits.into_iter().find(|wait| wait["event"] == event);
        found.map_or((0, 0), |wait| (number(wait, "count"), number(wait, "time_us")))
    }

    /// Whether the first destination is connected and receives redo as it is written.
    pub fn streams(&self) -> bool {
        self.text("/destinations/0/state") == "streaming"
    }

    /// Whether everything captured is durable here and applied at the first destination.
    pub fn settled(&self) -> bool {
        let captured = self.number("/captured");
        captured > 0
            && self.number("/durable") >= captured
            && self.number("/released") >= captured
            && self.number("/destinations/0/applied") >= captured
    }

    /// Returns a one-line summary for messages.
    pub fn brief(&self) -> String {
        let one = |pointer: &str| {
            format!("{}={}", pointer.trim_start_matches('/'), self.0.pointer(pointer).unwrap_or(&Value::Null))
        };
        let pointers = [
            "/role",
            "/state",
            "/captured",
            "/durable",
            "/released",
            "/waiting_for",
            "/destinations/0/state",
            "/destinations/0/hardened",
            "/destinations/0/applied",
            "/standby/hardened",
            "/standby/applied",
            "/standby/stopped_databases",
            "/destinations/0/stopped_databases",
        ];
        pointers
            .iter()
            .filter(|pointer| self.0.pointer(pointer).is_some())
            .map(|pointer| one(pointer))
            .collect::<Vec<_>>()
            .join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn primary_is_settled_when_its_standby_has_applied_everything() {
        let status = |applied: u64| {
            Status::parse(&format!(
                r#"{{"role":"primary","captured":9,"durable":9,"released":"9",
                    "databases":[{{"name":"a.db","state":"open"}}],
                    "destinations":[{{"state":"streaming","applied":{applied}}}]}}"#
            ))
            .unwrap()
        };
        assert!(status(9).settled() && status(9).streams());
        assert!(!status(8).settled());
        assert_eq!((status(9).database_state("a.db"), status(9).database_state("b.db")), ("open", ""));
        assert!(status(8).brief().contains("destinations/0/applied=8"));
        assert!(!Status::parse("{}").unwrap().settled());
    }
}
