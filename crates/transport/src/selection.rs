//! Which destinations of a group are in use (GROUP and PRIORITY). Pure.
//!
//! One destination of a group is in use: the best reachable one. Destinations with a better priority are tried
//! meanwhile; one that has caught up takes over again. All of priority 8 are in use when none of a better priority can
//! be.

/// The priority whose members are all in use together.
pub const PRIORITY_OF_LAST_RESORT: u8 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Not tried, being tried, or catching up while commits do not wait for it.
    Unknown,
    /// Connected and usable: commits wait for it, or it is asynchronous.
    Good,
    /// Abandoned after the configured number of failures.
    Failed,
}

/// A destination and its group; group 0 is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    pub group: u8,
    pub priority: u8,
    pub condition: Condition,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Redo is sent to it, and commits may wait for it.
    Serves,
    /// It is tried, so that it can take over from a worse one; commits do not wait for it.
    Returns,
    Rests,
}

/// Chooses for all destinations at once.
pub fn choose(members: &[Member]) -> Vec<Use> {
    let of_group = |index: usize| members[index].group;
    let serving = |group: u8| {
        let mut order: Vec<usize> = (0..members.len()).filter(|index| of_group(*index) == group).collect();
        order.sort_by_key(|index| members[*index].priority);
        let first = |condition: fn(Condition) -> bool| {
            order.iter().copied().find(|index| condition(members[*index].condition))
        };
        first(|condition| condition == Condition::Good)
            .or_else(|| first(|condition| condition != Condition::Failed))
            .or_else(|| order.first().copied())
    };
    let chosen: Vec<Option<usize>> = (0..=members.iter().map(|at| at.group).max().unwrap_or(0))
        .map(|group| if group == 0 { None } else { serving(group) })
        .collect();
    let one = |index: usize| {
        let member = members[index];
        let Some(serving) = chosen[usize::from(member.group)] else { return Use::Serves };
        let level = members[serving].priority;
        let together = level == PRIORITY_OF_LAST_RESORT && member.priority == level;
        if index == serving || together {
            Use::Serves
        } else if member.priority < level {
            Use::Returns
        } else {
            Use::Rests
        }
    };
    (0..members.len()).map(one).collect()
}

/// Whether abandoned members are to be tried again: when another one of the group is in use, or when none is left.
pub fn retry_failed(members: &[Member], group: u8) -> bool {
    let mut conditions = members.iter().filter(|at| at.group == group).map(|at| at.condition);
    let good = conditions.clone().any(|condition| condition == Condition::Good);
    group > 0 && (good || conditions.all(|condition| condition == Condition::Failed))
}

#[cfg(test)]
mod tests {
    use super::Condition::*;
    use super::Use::*;
    use super::*;

    fn choice(members: &[(u8, u8, Condition)]) -> Vec<Use> {
        let member = |&(group, priority, condition): &_| Member { group, priority, condition };
        choose(&members.iter().map(member).collect::<Vec<_>>())
    }

    #[test]
    fn destinations_outside_any_group_all_serve() {
        assert_eq!(choice(&[(0, 1, Good), (0, 1, Failed), (0, 1, Unknown)]), [Serves; 3]);
        assert!(choice(&[]).is_empty());
    }

    #[test]
    fn best_reachable_destination_serves_while_better_are_retried() {
        let group = |first, second, third| choice(&[(1, 1, first), (1, 2, second), (1, 3, third)]);
        assert_eq!(group(Unknown, Unknown, Unknown), [Serves, Rests, Rests]);
        assert_eq!(group(Failed, Unknown, Unknown), [Returns, Serves, Rests]);
        assert_eq!(group(Failed, Good, Unknown), [Returns, Serves, Rests]);
        assert_eq!(
            group(Unknown, Good, Unknown),
            [Returns, Serves, Rests],
            "no break before the other is good"
        );
        assert_eq!(group(Good, Good, Unknown), [Serves, Rests, Rests], "back upward");
        assert_eq!(group(Failed, Failed, Good), [Returns, Returns, Serves]);
        assert_eq!(group(Failed, Failed, Failed), [Serves, Rests, Rests]);
    }

    #[test]
    fn all_last_resort_destinations_serve_but_one_per_other_level() {
        let at = |priority| choice(&[(2, 1, Failed), (2, priority, Unknown), (2, priority, Unknown)]);
        assert_eq!(at(8), [Returns, Serves, Serves]);
        assert_eq!(at(7), [Returns, Serves, Rests]);
        assert_eq!(choice(&[(2, 1, Good), (2, 8, Good), (2, 8, Unknown)]), [Serves, Rests, Rests]);
    }

    #[test]
    fn groups_do_not_depend_on_each_other() {
        let two = [(1, 1, Failed), (2, 1, Good), (1, 2, Good), (0, 1, Failed), (2, 2, Unknown)];
        assert_eq!(choice(&two), [Returns, Serves, Serves, Serves, Rests]);
    }

    /// While one is still being tried, trying earlier ones again would only delay it.
    #[test]
    fn failed_members_are_retried_unless_another_is_being_tried() {
        let retry = |first, second| {
            let member = |priority, condition| Member { group: 1, priority, condition };
            retry_failed(&[member(1, first), member(2, second)], 1)
        };
        assert!(retry(Failed, Good) && retry(Failed, Failed));
        assert!(!retry(Failed, Unknown));
        assert!(!retry_failed(&[Member { group: 0, priority: 1, condition: Failed }], 0));
    }
}
