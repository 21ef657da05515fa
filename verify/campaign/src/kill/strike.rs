//! Which processes a cycle kills, in which order, and when. Drawn from a seed: pure and repeatable.

use super::arms;
use standfast_testkit::Rng;
use std::time::Duration;

/// A process that can be killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victim {
    Application(usize),
    Primary,
    Standby,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Strike {
    /// How long everything runs before the kills.
    pub after: Duration,
    /// The killed processes, in this order.
    pub victims: Vec<Victim>,
    /// The restarted processes, in this order, with a pause before each.
    pub restarts: Vec<(Duration, Victim)>,
    /// The same processes are killed a second time, this long after the restart, in the middle of their recovery.
    pub again: Option<Duration>,
    /// Fault point at which a restarted primary kills itself.
    pub primary_arms: Option<String>,
    /// Fault point at which a restarted standby kills itself.
    pub standby_arms: Option<String>,
}

impl Strike {
    /// Draws the plan of a cycle with `applications` applications.
    pub fn draw(rng: &mut Rng, applications: usize) -> Strike {
        let after = Duration::from_millis(rng.between(150, 900));
        let mut victims = match rng.below(100) {
            0..22 => vec![Victim::Application(rng.below(applications as u64) as usize)],
            22..32 => (0..applications).map(Victim::Application).collect(),
            32..57 => vec![Victim::Primary],
            57..75 => vec![Victim::Standby],
            75..83 => vec![Victim::Primary, Victim::Standby],
            83..93 => {
                let mut all: Vec<_> = (0..applications).map(Victim::Application).collect();
                all.push(Victim::Primary);
                all
            }
            _ => {
                let mut all: Vec<_> = (0..applications).map(Victim::Application).collect();
                all.extend([Victim::Primary, Victim::Standby]);
                all
            }
        };
        rng.shuffle(&mut victims);
        let mut restarts: Vec<_> = victims
            .iter()
            .map(|victim| {
                (Duration::from_millis(if rng.chance(50) { 0 } else { rng.between(1, 250) }), *victim)
            })
            .collect();
        rng.shuffle(&mut restarts);
        let again = rng.chance(20).then(|| Duration::from_millis(rng.between(0, 150)));
        let primary_arms = rng.chance(50).then(|| arms::of_primary(rng));
        let standby_arms = rng.chance(50).then(|| arms::of_standby(rng));
        let primary_arms = primary_arms.filter(|_| victims.contains(&Victim::Primary));
        let standby_arms = standby_arms.filter(|_| victims.contains(&Victim::Standby));
        Strike { after, victims, restarts, again, primary_arms, standby_arms }
    }
}

impl std::fmt::Display for Strike {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "after {} ms kill {:?}, start", self.after.as_millis(), self.victims)?;
        for (pause, victim) in &self.restarts {
            write!(f, " +{}ms {victim:?}", pause.as_millis())?;
        }
        for arms in self.primary_arms.iter().chain(&self.standby_arms) {
            write!(f, " ({arms})")?;
        }
        self.again.map_or(Ok(()), |again| write!(f, ", and again after {} ms", again.as_millis()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_process_is_killed_alone_and_together_and_restarted() {
        let mut rng = Rng::new(1);
        let strikes: Vec<Strike> = (0..500).map(|_| Strike::draw(&mut rng, 3)).collect();
        let alone = |victim: Victim| strikes.iter().any(|strike| strike.victims == [victim]);
        assert!((0..3).map(Victim::Application).chain([Victim::Primary, Victim::Standby]).all(alone));
        assert!(strikes.iter().any(|strike| strike.victims.len() == 5));
        assert!(strikes.iter().any(|strike| strike.again.is_some()));
        for strike in &strikes {
            assert!(
                strike.victims.iter().all(|hit| strike.restarts.iter().any(|(_, started)| started == hit))
            );
            assert_eq!(strike.victims.len(), strike.restarts.len());
            assert!(strike.primary_arms.is_none() || strike.victims.contains(&Victim::Primary));
        }
        assert_eq!(strikes[0], Strike::draw(&mut Rng::new(1), 3), "the same seed gives the same campaign");
    }
}
