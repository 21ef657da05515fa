//! Restarted instances that will kill themselves at a certain place: between a write and the word of it, in
//! the middle of a checkpoint or a recovery. A clock hardly ever hits these.

use standfast_testkit::Rng;

/// Places in a primary, with the number of times they are passed before they strike, at most.
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

/// Places in a standby.
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

/// Places that a standby passes while it becomes primary.
const FAILOVER: [(&str, u64); 6] =
    [("replace", 4), ("create", 4), ("sync", 8), ("copy", 6), ("log-write", 3), ("log-written", 3)];

/// For a primary, as the value of `STANDFAST_FAULT`.
pub fn of_primary(rng: &mut Rng) -> String {
    draw(rng, &PRIMARY)
}

/// For a standby.
pub fn of_standby(rng: &mut Rng) -> String {
    draw(rng, &STANDBY)
}

/// For a standby that is about to take over.
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
    fn every_place_is_drawn() {
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
