//! Reduces a failing program to the steps that it needs to fail.

use super::program::Program;

/// Removes as many steps as possible while `fails` returns true; calls it at most `tries` times.
pub fn shrink(program: &Program, tries: u32, mut fails: impl FnMut(&Program) -> bool) -> Program {
    let mut smallest = program.clone();
    let mut left = tries;
    let mut length = smallest.steps.len().div_ceil(2);
    while length > 0 && left > 0 {
        let mut at = 0;
        let before = smallest.steps.len();
        while at < smallest.steps.len() && left > 0 {
            let mut candidate = smallest.clone();
            candidate.steps.drain(at..(at + length).min(smallest.steps.len()));
            left -= 1;
            if fails(&candidate) {
                smallest = candidate;
            } else {
                at += length;
            }
        }
        length = match (length, smallest.steps.len() < before) {
            (1, false) => 0,
            (1, true) => 1,
            _ => length / 2,
        };
    }
    smallest
}

#[cfg(test)]
mod tests {
    use super::super::generate::program;
    use super::super::program::Step;
    use super::*;

    #[test]
    fn shrinking_keeps_only_the_steps_that_matter() {
        let mut whole = program(3);
        for at in [1, 20] {
            whole.steps.insert(at, Step::Flush { connection: 3 });
        }
        let flushes = |program: &Program| {
            program.steps.iter().filter(|step| **step == Step::Flush { connection: 3 }).count()
        };
        let smallest = shrink(&whole, 1_000, |candidate| flushes(candidate) >= 2);
        assert_eq!(smallest.steps, vec![Step::Flush { connection: 3 }; 2]);
        assert_eq!(shrink(&whole, 0, |_| true), whole);
    }
}
