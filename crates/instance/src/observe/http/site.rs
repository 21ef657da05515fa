//! The pages, and who may read them.

use super::request::{Access, Answer, Decision, Request};
use crate::observe::latest::Latest;
use crate::observe::observation::observe;
use crate::role::running::Running;
use crate::role::serving::Serving;
use standfast_live::{Severity, metrics};
use std::sync::{Arc, Weak};

pub(super) const PAGE: &str = include_str!("dashboard.html");
const STYLE: &str = include_str!("dashboard.css");
const SCRIPT: &str = include_str!("dashboard.js");
const ICON: &str = include_str!("icon.svg");

/// What is served, and to whom.
pub(super) struct Site {
    pub(super) access: Access,
    /// Probes need no token.
    pub(super) open_probes: bool,
    pub(super) running: Weak<Running>,
    pub(super) latest: Arc<Latest>,
}

impl Site {
    /// Decides whether a request is answered; `None` when the answer is the page.
    pub(super) fn decide(&self, request: &Request) -> (Decision, Option<Answer>) {
        let decision = self.access.decide(request);
        if decision == Decision::Unauthorized && self.open_probes && is_read(request) {
            return (decision, Some(self.probe(&request.path).unwrap_or_else(unauthorized)));
        }
        let answer = match decision {
            Decision::Allow | Decision::Remember if !is_read(request) => {
                let mut answer = Answer::text("405 Method Not Allowed", "read only: GET");
                answer.headers = "Allow: GET, HEAD\r\n".into();
                Some(answer)
            }
            Decision::Allow => None,
            Decision::Remember => Some(Answer::remember(request)),
            Decision::Unauthorized => Some(unauthorized()),
            Decision::Forbidden => Some(Answer::text("403 Forbidden", "ask for an address or for localhost")),
        };
        (decision, answer)
    }

    /// Returns the page at `path`.
    pub(super) fn page(&self, path: &str) -> Answer {
        match path {
            "/" => Answer::new("200 OK", "text/html; charset=utf-8", PAGE),
            "/dashboard.css" => Answer::new("200 OK", "text/css; charset=utf-8", STYLE),
            "/dashboard.js" => Answer::new("200 OK", "text/javascript; charset=utf-8", SCRIPT),
            "/icon.svg" => Answer::new("200 OK", "image/svg+xml", ICON),
            "/metrics" => self.latest.with(|live| match live {
                Some(live) => Answer::new("200 OK", metrics::CONTENT_TYPE, live.exposition()),
                None => starting(),
            }),
            "/api/dashboard" => self.latest.with(|live| match live {
                Some(live) => json(&live.dashboard()),
                None => starting(),
            }),
            "/healthz" => self.latest.with(|live| match live {
                Some(live) => health(live.check()),
                None => starting(),
            }),
            "/api/observation" => match self.running.upgrade() {
                Some(running) => json(&observe(&running, true, true)),
                None => starting(),
            },
            path => self.probe(path).unwrap_or_else(|| {
                let all = "there are: / /metrics /api/dashboard /api/observation /healthz /primary /standby /livez /readyz";
                Answer::text("404 Not Found", all)
            }),
        }
    }

    /// Answers load balancers, supervisors and Kubernetes: 200 when the instance is that at this moment, else 503. `None`
    /// for other paths.
    fn probe(&self, path: &str) -> Option<Answer> {
        let serving = self.running.upgrade().map_or(Serving::NotYet, |running| running.serving());
        let holds = match path {
            "/livez" => true,
            "/primary" => serving == Serving::Primary,
            "/standby" => serving == Serving::Standby,
            "/readyz" => !matches!(serving, Serving::NotYet | Serving::Nothing(_)),
            _ => return None,
        };
        Some(Answer::text(if holds { "200 OK" } else { UNAVAILABLE }, serving.text()))
    }
}

const UNAVAILABLE: &str = "503 Service Unavailable";

fn is_read(request: &Request) -> bool {
    ["GET", "HEAD"].contains(&request.method.as_str())
}

fn unauthorized() -> Answer {
    let hint = "a token is needed: open /?token=TOKEN once, or send `Authorization: Bearer TOKEN`";
    let mut answer = Answer::text("401 Unauthorized", hint);
    answer.headers = "WWW-Authenticate: Bearer\r\n".into();
    answer
}

fn starting() -> Answer {
    Answer::text(UNAVAILABLE, "the instance is starting or stopping")
}

/// Only a critical state fails the health check: a load balancer must not take a primary away for a warning.
fn health((severity, line): (Severity, String)) -> Answer {
    let status = if severity == Severity::Critical { UNAVAILABLE } else { "200 OK" };
    Answer::text(status, &line)
}

fn json(document: &impl serde::Serialize) -> Answer {
    match serde_json::to_vec(document) {
        Ok(body) => Answer::new("200 OK", "application/json", body),
        Err(error) => Answer::text("500 Internal Server Error", &error.to_string()),
    }
}
