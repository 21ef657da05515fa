//! Fault points at which restarted instances kill themselves: between a write and its report, in the middle of a
//! checkpoint or a recovery. Kills at random times hardly ever hit these.

use standfast_testkit::Rng;

/// Fault points of a primary, each with the maximum number of passes before it strikes.
const PRIMARY: [(&str, u64); 10] = [
    ("log-write", 400),
    ("log-written", 400),
    ("send", 400),
    ("copy", 8),
    ("sync", 20),
    ("create", 3),
    ("replace", 6),
    ("checkpoint-reset", 4),
    ("log-rewrite", 12),
    ("recovery-apply", 1),
];

const STANDBY: [(&str, u64); 10] = [
    ("received", 400),
    ("log-write", 400),
    ("log-written", 400),
    ("apply-commit", 150),
    ("apply-committed", 150),
    ("sync", 20),
    ("replace", 6),
    ("checkpoint-reset", 4),
    ("log-rewrite", 12),
    ("recovery-apply", 1),
];

/// Fault points that a standby passes during a failover.
const FAILOVER: [(&str, u64); 6] =
    [("replace", 4), ("create", 4), ("sync", 8), ("copy", 6), ("log-write", 3), ("log-written", 3)];

/// Draws a fault point of a primary, as the value of `STANDFAST_FAULT`.
pub fn of_primary(rng: &mut Rng) -> String {
    draw(rng, &PRIMARY)
}

/// Draws a fault point of a standby.
pub fn of_standby(rng: &mut Rng) -> String {
    draw(rng, &STANDBY)
}

/// Draws a fault point of a standby that is about to fail over.
pub fn of_failover(rng: &mut Rng) -> String {
    draw(rng, &FAILOVER)
}

fn draw(rng: &mut Rng, places: &[(&str, u64)]) -> String {
    let (place, passes) = rng.pick(places).copied().unwrap_or(("log-write", 1));
    format!("{place}=kill@{}", rng.between(1, passes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kill_point_of_the_primary_is_drawn() {
        let mut rng = Rng::new(3);
        let drawn: Vec<String> = (0..300).map(|_| of_primary(&mut rng)).collect();
        for (place, passes) in PRIMARY {
            let count = |text: &&String| text.starts_with(&format!("{place}=kill@"));
            assert!(drawn.iter().filter(count).count() > 10, "{place}");
            assert!(drawn.iter().all(|text| *text != format!("{place}=kill@{}", passes + 1)));
        }
        assert!(of_failover(&mut rng).contains("=kill@") && of_standby(&mut rng).contains("=kill@"));
    }
}
