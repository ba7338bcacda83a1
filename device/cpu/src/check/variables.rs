//! Which variable of a module an access is of, or beside: block-shared ones, and `__device__` and
//! `__constant__` ones. There is room between them (`padding`), which is nobody's.

use crate::lines::Variable;
use crate::padding::GUARD;

/// What an access is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Accessed<'a> {
    /// A variable, all of it.
    In(&'a Variable),
    /// None, or not all of it: how far past the nearest one's end it begins, or before its beginning or its
    /// end.
    Beside(&'a Variable, isize),
    /// Not the user's, or nothing that has a name.
    Unknown,
}

/// What is accessed there, among variables in the order of their places.
pub(super) fn find(variables: &[Variable], at: usize, bytes: usize) -> Accessed<'_> {
    if bytes == 0 {
        return Accessed::Unknown; // a copy of nothing
    }
    let after = variables.partition_point(|variable| variable.range.start <= at);
    let before = after.checked_sub(1).map(|i| &variables[i]);
    if let Some(variable) = before.filter(|variable| at < variable.range.end) {
        return match (variable.is_users, at + bytes <= variable.range.end) {
            (false, _) => Accessed::Unknown,
            (true, true) => Accessed::In(variable),
            (true, false) => Accessed::Beside(variable, at as isize - variable.range.end as isize),
        };
    }
    let behind = before.map(|variable| (at - variable.range.end, variable, 1));
    let ahead = variables.get(after).map(|variable| (variable.range.start - at, variable, -1));
    let near = [behind, ahead].into_iter().flatten();
    let nearest =
        near.filter(|(apart, variable, _)| variable.is_users && *apart < GUARD).min_by_key(|one| one.0);
    nearest.map_or(Accessed::Unknown, |(apart, variable, sign)| {
        Accessed::Beside(variable, apart as isize * sign)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_belong_to_the_nearest_variable_of_the_users() {
        let variable = |range, is_users| Variable { range, name: String::new(), is_users };
        let all = [variable(1000..1008, false), variable(2000..2064, true), variable(2320..2324, true)];
        let found = |at, bytes| match find(&all, at, bytes) {
            Accessed::In(one) => Some((one.range.start, None)),
            Accessed::Beside(one, past) => Some((one.range.start, Some(past))),
            Accessed::Unknown => None,
        };
        assert_eq!(found(2000, 64), Some((2000, None)));
        assert_eq!(found(2062, 4), Some((2000, Some(-2))));
        assert_eq!(found(2064, 4), Some((2000, Some(0))));
        assert_eq!(found(2100, 1), Some((2000, Some(36))));
        assert_eq!(found(2316, 4), Some((2320, Some(-4))));
        assert_eq!(found(2318, 4), Some((2320, Some(-2))), "it runs over the beginning");
        assert_eq!(found(1996, 4), Some((2000, Some(-4))));
        assert_eq!(found(2324 + 255, 1), Some((2320, Some(255))));
        for (at, bytes) in
            [(1000, 8), (1006, 4), (1008, 4), (2324 + 256, 1), (2000 - 256, 1), (0, 1), (2064, 0)]
        {
            assert_eq!(found(at, bytes), None, "{at}");
        }
    }
}
