//! Answers members.

use crate::file::ObserverFile;
use serde_json::{Value, json};
use standfast_arbitration::arbiter::Ask;
use standfast_arbitration::record::{Record, Standing};
use standfast_arbitration::register::Register;
use standfast_documents::observer::{HeardMember, ObserverState};
use standfast_environment::config::settings::InstanceConfig;
use standfast_environment::security::Keeper;
use standfast_environment::state::alert::AlertLog;
use standfast_transport::{
    Incarnation, PeerIdentity, ReceiverEvent, ReceiverService, RedoSource, Refusal, RefuseCode, Right, Role,
};
use standfast_types::{Hint, IncarnationId, InstanceId, Scn};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

const HEARD_MAX: usize = 64;

pub struct ObserverService {
    name: String,
    /// Plain TCP: no member is listed.
    is_insecure: bool,
    keeper: Arc<Keeper>,
    alert: AlertLog,
    file: ObserverFile,
    register: Mutex<Register>,
    /// When each member last asked.
    heard: Mutex<BTreeMap<String, Instant>>,
    /// The record could not be stored, and the file may have it nevertheless: nothing is answered before the file has the one
    /// that counts.
    is_failing: Mutex<bool>,
}

impl ObserverService {
    pub fn new(
        config: &InstanceConfig,
        keeper: Arc<Keeper>,
        alert: AlertLog,
        file: ObserverFile,
        register: Register,
    ) -> ObserverService {
        ObserverService {
            name: config.name.clone(),
            is_insecure: config.insecure,
            keeper,
            alert,
            file,
            register: Mutex::new(register),
            heard: Mutex::default(),
            is_failing: Mutex::default(),
        }
    }

    /// The first record is made by a member that may be primary; the later ones say who may replace them.
    fn may_begin(&self, member: &str, ask: &Ask) -> Result<(), Refusal> {
        if self.is_insecure || matches!(ask, Ask::Read { .. }) || locked(&self.register).record().is_some() {
            return Ok(());
        }
        let members =
            self.keeper.members().map_err(|error| Refusal::new(RefuseCode::Source, error.in_one_line()))?;
        if members.candidates().iter().any(|name| name == member) {
            return Ok(());
        }
        let text = format!(
            "`{member}` is not listed at `{}` as one that may become primary; make the observer again with a token of it",
            self.name
        );
        Err(Refusal::new(RefuseCode::NotAllowed, text))
    }

    /// Answers, after the record is durable.
    fn answer(&self, member: &str, ask: &Ask) -> Result<Value, Refusal> {
        let mut register = locked(&self.register);
        let mut next = register.clone();
        let answered = next.answer(member, ask);
        if answered.store || *locked(&self.is_failing) {
            let stored = self.file.store(next.record());
            self.report(stored.as_ref().err().map(Hint::in_one_line));
            stored.map_err(|error| Refusal::new(RefuseCode::Source, error.in_one_line()))?;
        }
        if let Some(record) = next.record().filter(|_| answered.store) {
            self.alert.say(in_words(&record.primary, &record.standing));
        }
        if next.votes() != register.votes() {
            self.alert.say(match next.votes() {
                true => "this observer decides: primary and target have reported where they stand",
                false => {
                    "this observer decides nothing until primary and target have reported where they stand"
                }
            });
        }
        *register = next;
        serde_json::to_value(&answered.answer)
            .map_err(|error| Refusal::new(RefuseCode::Source, error.to_string()))
    }

    fn report(&self, error: Option<String>) {
        let mut is_failing = locked(&self.is_failing);
        match (&error, *is_failing) {
            (Some(error), false) => {
                self.alert.say(format!("THE RECORD CANNOT BE KEPT, nothing is decided: {error}"))
            }
            (None, true) => self.alert.say("the record can be kept again"),
            _ => {}
        }
        *is_failing = error.is_some();
    }
}

/// Returns the line for the alert log.
fn in_words(primary: &str, standing: &Standing) -> String {
    match standing {
        Standing::Unsynchronized => format!("`{primary}` acknowledges alone: no member may take over"),
        Standing::Synchronized { target } => {
            format!("`{target}` may take over from `{primary}`, which acknowledges only what `{target}` has")
        }
        Standing::FailedOver { by, has_all: true } => format!("FAILOVER: `{by}` takes over from `{primary}`"),
        Standing::FailedOver { by, has_all: false } => {
            format!(
                "FAILOVER, ordered by an operator: `{by}` takes over from `{primary}`, which acknowledged alone"
            )
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ReceiverService for ObserverService {
    fn identity(&self) -> PeerIdentity {
        // It belongs to no history: members that compare find it unrelated.
        let none = Incarnation { number: 0, id: IncarnationId::default(), branch: Scn::ZERO };
        PeerIdentity {
            instance: InstanceId::default(),
            name: self.name.clone(),
            family: None,
            role: Role::Observer,
            incarnations: vec![none],
            promotion: None,
        }
    }

    fn admit(&self, _: &standfast_transport::SenderHello) -> Result<(), Refusal> {
        let text = format!("`{}` is an observer: it receives no redo", self.name);
        Err(Refusal::new(RefuseCode::NotStandby, text))
    }

    fn source(&self) -> Option<Arc<dyn RedoSource>> {
        None
    }

    fn status(&self, _: bool) -> String {
        let register = locked(&self.register);
        let heard = |(name, at): (&String, &Instant)| HeardMember {
            name: Some(name.clone()),
            ago_ms: Some(at.elapsed().as_millis() as u64),
        };
        let observer = ObserverState {
            name: Some(self.name.clone()),
            votes: Some(register.votes()),
            record: register.record().map(Record::document),
            heard: Some(locked(&self.heard).iter().map(heard).collect()),
        };
        let state = if register.votes() { "observing" } else { "not deciding yet" };
        let status = json!({ "name": self.name, "role": "observer", "state": state });
        json!({ "status": status, "observer": observer }).to_string()
    }

    fn event(&self, event: &ReceiverEvent) {
        self.alert.say(format!("receiver: {event}"));
    }

    /// A certificate of the family is enough to read and to ask; what a member may change is up to the register.
    fn authorise(&self, peer: &str, wish: Right) -> Result<(), Refusal> {
        if wish == Right::Status {
            return Ok(());
        }
        let text = format!("`{peer}` may not {} at `{}`, which is an observer", wish.words(), self.name);
        Err(Refusal::new(RefuseCode::NotAllowed, text))
    }

    fn rights_version(&self) -> u64 {
        self.keeper.rights_version()
    }

    fn arbitrate(&self, member: &str, wish: &Value) -> Result<Value, Refusal> {
        let ask: Ask = serde_json::from_value(wish.clone()).map_err(|error| {
            Refusal::new(RefuseCode::Protocol, format!("no request to an observer: {error}"))
        })?;
        let mut heard = locked(&self.heard);
        // A family has fewer; over plain TCP any name can be claimed.
        if heard.len() >= HEARD_MAX && !heard.contains_key(member) {
            heard.pop_first();
        }
        heard.insert(member.to_owned(), Instant::now());
        drop(heard);
        self.may_begin(member, &ask)?;
        self.answer(member, &ask)
    }
}
