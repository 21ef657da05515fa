//! Looks up addresses. The system's resolver has no limit of its own that a caller could set, and waits half a minute and
//! more for servers that do not answer: it runs in a thread, and each caller waits only as long as it wants.

use std::collections::HashMap;
use std::io::{Error, ErrorKind, Result};
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const LOOK: Duration = Duration::from_millis(50);

/// What a lookup found; an error in a form that several callers can have.
type Found = std::result::Result<Vec<SocketAddr>, (ErrorKind, String)>;

/// A lookup; `found` is empty while it runs.
#[derive(Default)]
struct Lookup {
    found: Mutex<Option<Found>>,
    is_done: Condvar,
}

/// Callers of one address share a lookup: one that hangs costs one thread, however often it is tried again.
pub struct Resolver {
    running: Mutex<Option<HashMap<String, Arc<Lookup>>>>,
    look_up: fn(&str) -> Result<Vec<SocketAddr>>,
}

/// That of the system.
pub static SYSTEM: Resolver = Resolver::new(|address| address.to_socket_addrs().map(|found| found.collect()));

impl Resolver {
    const fn new(look_up: fn(&str) -> Result<Vec<SocketAddr>>) -> Resolver {
        Resolver { running: Mutex::new(None), look_up }
    }

    /// Returns the addresses that `address`, HOST:PORT, stands for. Calls `give_up` every 50 ms.
    ///
    /// # Errors
    /// `TimedOut` after `limit`, `Interrupted` when `give_up` returns true, or the resolver's error.
    pub fn resolve(
        &'static self,
        address: &str,
        limit: Duration,
        give_up: &dyn Fn() -> bool,
    ) -> Result<Vec<SocketAddr>> {
        if let Ok(address) = address.parse() {
            return Ok(vec![address]);
        }
        let until = Instant::now() + limit;
        let lookup = self.lookup(address)?;
        let mut found = locked(&lookup.found);
        loop {
            match &*found {
                Some(Ok(addresses)) => return Ok(addresses.clone()),
                Some(Err((kind, text))) => return Err(Error::new(*kind, text.clone())),
                None => {}
            }
            if give_up() {
                return Err(ErrorKind::Interrupted.into());
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Error::new(ErrorKind::TimedOut, "the name was not resolved in time"));
            }
            let waited = lookup.is_done.wait_timeout(found, left.min(LOOK));
            found = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Returns the lookup of this address that runs, or starts one.
    fn lookup(&'static self, address: &str) -> Result<Arc<Lookup>> {
        let mut running = locked(&self.running);
        let running = running.get_or_insert_default();
        if let Some(lookup) = running.get(address) {
            return Ok(lookup.clone());
        }
        let lookup = Arc::new(Lookup::default());
        let (name, to) = (address.to_owned(), lookup.clone());
        std::thread::Builder::new().name("resolve".into()).spawn(move || {
            let found = (self.look_up)(&name).map_err(|error| (error.kind(), error.to_string()));
            // The next caller asks again.
            if let Some(running) = &mut *locked(&self.running) {
                running.remove(&name);
            }
            *locked(&to.found) = Some(found);
            to.is_done.notify_all();
        })?;
        running.insert(address.to_owned(), lookup.clone());
        Ok(lookup)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn numbers_need_no_resolver() {
        static NONE: Resolver = Resolver::new(|_| panic!("looked up"));
        let found = NONE.resolve("[::1]:7", Duration::ZERO, &|| false).unwrap();
        assert_eq!(found, ["[::1]:7".parse().unwrap()]);
    }

    #[test]
    fn name_is_resolved_and_an_error_is_reported() {
        assert!(!SYSTEM.resolve("localhost:7", LONG, &|| false).unwrap().is_empty());
        static FAILS: Resolver = Resolver::new(|_| Err(Error::other("no such host")));
        let error = FAILS.resolve("beta:7", LONG, &|| false).unwrap_err();
        assert_eq!(error.to_string(), "no such host");
    }

    #[test]
    fn resolver_that_hangs_holds_no_caller_up_and_is_asked_once() {
        static ASKED: AtomicUsize = AtomicUsize::new(0);
        static ANSWERS: Mutex<bool> = Mutex::new(false);
        static ANSWER: Condvar = Condvar::new();
        static HANGS: Resolver = Resolver::new(|_| {
            ASKED.fetch_add(1, Ordering::SeqCst);
            let mut answers = locked(&ANSWERS);
            while !*answers {
                answers = ANSWER.wait(answers).unwrap();
            }
            Ok(vec!["10.0.0.2:7".parse().unwrap()])
        });
        for _ in 0..3 {
            let error = HANGS.resolve("beta:7", Duration::from_millis(1), &|| false).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TimedOut);
        }
        let error = HANGS.resolve("beta:7", LONG, &|| true).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Interrupted);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| HANGS.resolve("beta:7", LONG, &|| false));
            *locked(&ANSWERS) = true;
            ANSWER.notify_all();
            assert_eq!(waiting.join().unwrap().unwrap(), ["10.0.0.2:7".parse().unwrap()]);
        });
        // By then the callers above had shared one lookup; the last one may have come after its end.
        assert!((1..=2).contains(&ASKED.load(Ordering::SeqCst)));
    }
}
