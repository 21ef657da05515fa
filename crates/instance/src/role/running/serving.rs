//! What an instance serves at this moment, for load balancers and supervisors.

use super::{Mode, Running};

/// What applications can do with this instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Serving {
    /// They write and read: it is the open primary.
    Primary,
    /// They read: it is an open standby.
    Standby,
    /// It is open and has no databases.
    FarSync,
    /// Nothing, for this reason.
    Nothing(&'static str),
}

impl Running {
    /// Never waits: while the role is being changed nothing is served.
    pub fn serving(&self) -> Serving {
        match self.mode.try_lock().as_deref() {
            Ok(mode) => mode.serving(),
            Err(_) => Serving::Nothing(CHANGING),
        }
    }
}

const CHANGING: &str = "changing its role";

impl Mode {
    pub(crate) fn serving(&self) -> Serving {
        match self {
            Mode::Primary(primary) if primary.threads.failure().is_none() => Serving::Primary,
            Mode::Primary(_) => Serving::Nothing("a primary whose log has failed"),
            Mode::Standby(_) => Serving::Standby,
            Mode::FarSync(_) => Serving::FarSync,
            Mode::Fenced(_) => Serving::Nothing("fenced: another instance is the primary"),
            Mode::Changing => Serving::Nothing(CHANGING),
            Mode::Stuck(_) => Serving::Nothing("between two roles: restart it"),
        }
    }
}
