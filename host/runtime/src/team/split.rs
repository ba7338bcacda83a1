//! Which members of a team a new one has, in which order (OpenSHMEM 1.5, 9.4; `split` as MPI's
//! `Comm_split`). Pure: arguments have been compared before, so every member comes to the same groups.

use crate::error::{err, Result};

/// The members of a new team by their numbers in its parent, in their new order; one of them is this PE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) members: Vec<usize>,
    pub(crate) me: usize,
}

impl Group {
    fn of(members: Vec<usize>, me: usize) -> Option<Group> {
        let me = members.iter().position(|member| *member == me)?;
        Some(Group { members, me })
    }
}

/// Members `start`, `start + stride` ... of `n`, so many; of member `me`, `None` where it is none of them.
pub(crate) fn strided(n: usize, me: usize, start: i32, stride: i32, size: i32) -> Result<Option<Group>> {
    let last = i64::from(start) + (i64::from(size) - 1) * i64::from(stride);
    let inside = |member: i64| (0..n as i64).contains(&member);
    if size < 1 || (stride == 0 && size > 1) || !inside(start.into()) || !inside(last) {
        return Err(err!(
            INVALID_ARGUMENT,
            "start {start}, stride {stride}, size {size}: expected one member at least, each another one, out of 0 to {}",
            n - 1
        ));
    }
    let member = |i: i32| (i64::from(start) + i64::from(i) * i64::from(stride)) as usize;
    Ok(Group::of((0..size).map(member).collect(), me))
}

/// The row and the column of member `me` where `n` members are laid out in rows of `x_range`: those with the
/// same y, and those with the same x.
pub(crate) fn grid(n: usize, me: usize, x_range: i32) -> Result<(Group, Group)> {
    if x_range < 1 {
        return Err(err!(INVALID_ARGUMENT, "an x range of {x_range}: expected 1 or more"));
    }
    let x_range = (x_range as usize).min(n);
    let (x, row) = (me % x_range, me - me % x_range);
    let here = "a member is in its own row and column";
    let row = Group::of((row..n.min(row + x_range)).collect(), me).expect(here);
    Ok((row, Group::of((x..n).step_by(x_range).collect(), me).expect(here)))
}

/// The members of `me`'s colour, by key and then by number; `None` for no colour.
pub(crate) fn coloured(all: &[(Option<u64>, i64)], me: usize) -> Option<Group> {
    let colour = all[me].0?;
    let mut members: Vec<usize> = (0..all.len()).filter(|i| all[*i].0 == Some(colour)).collect();
    members.sort_by_key(|i| (all[*i].1, *i));
    Group::of(members, me)
}

/// Members `list` of `n`, in that order.
pub(crate) fn listed(n: usize, me: usize, list: &[i32]) -> Result<Option<Group>> {
    let mut seen = vec![false; n];
    for member in list {
        let seen = usize::try_from(*member).ok().and_then(|member| seen.get_mut(member));
        match seen {
            None => {
                return Err(err!(
                    INVALID_ARGUMENT,
                    "{member} in the list is no member: expected 0 to {}",
                    n - 1
                ))
            }
            Some(true) => return Err(err!(INVALID_ARGUMENT, "{member} is in the list twice")),
            Some(seen) => *seen = true,
        }
    }
    Ok(Group::of(list.iter().map(|member| *member as usize).collect(), me))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(group: Option<Group>) -> Option<(Vec<usize>, usize)> {
        group.map(|group| (group.members, group.me))
    }

    #[test]
    fn strides_go_either_way_and_stay_inside() {
        let split = |me, start, stride, size| strided(7, me, start, stride, size).map(members);
        assert_eq!(split(4, 0, 2, 4).unwrap(), Some((vec![0, 2, 4, 6], 2)));
        assert_eq!(split(3, 0, 2, 4).unwrap(), None);
        assert_eq!(split(1, 5, -2, 3).unwrap(), Some((vec![5, 3, 1], 2)));
        assert_eq!(split(6, 6, 0, 1).unwrap(), Some((vec![6], 0)));
        for (start, stride, size) in [
            (0, 2, 5),
            (-1, 1, 3),
            (7, 1, 1),
            (0, 0, 2),
            (0, 1, 0),
            (0, 1, -1),
            (2, -2, 3),
            (1, i32::MAX, i32::MAX),
            (i32::MAX, i32::MAX, 2),
        ] {
            let e = split(0, start, stride, size).unwrap_err();
            assert!(e.message.contains(&format!("start {start}, stride {stride}, size {size}")), "{e}");
        }
    }

    #[test]
    fn a_grid_has_rows_and_columns_and_the_last_row_may_be_short() {
        let (row, column) = grid(7, 4, 3).unwrap();
        assert_eq!((row.members, row.me, column.members, column.me), (vec![3, 4, 5], 1, vec![1, 4], 1));
        let (row, column) = grid(7, 6, 3).unwrap();
        assert_eq!((row.members, row.me, column.members, column.me), (vec![6], 0, vec![0, 3, 6], 2));
        let (row, column) = grid(3, 1, 100).unwrap();
        assert_eq!((row.members.len(), column.members), (3, vec![1]));
        assert!(grid(3, 1, 0).is_err());
    }

    #[test]
    fn colours_are_ordered_by_key_and_then_by_number() {
        let all = [(Some(1), 5), (Some(2), 0), (Some(1), -3), (None, 0), (Some(1), 5), (Some(1), i64::MIN)];
        assert_eq!(members(coloured(&all, 4)), Some((vec![5, 2, 0, 4], 3)));
        assert_eq!(members(coloured(&all, 1)), Some((vec![1], 0)));
        assert_eq!(members(coloured(&all, 3)), None);
    }

    #[test]
    fn a_list_names_each_member_once() {
        assert_eq!(members(listed(5, 0, &[3, 0, 4]).unwrap()), Some((vec![3, 0, 4], 1)));
        assert_eq!(members(listed(5, 1, &[3, 0, 4]).unwrap()), None);
        assert_eq!(members(listed(5, 1, &[]).unwrap()), None);
        assert!(listed(5, 0, &[3, 0, 3]).unwrap_err().message.contains("3 is in the list twice"));
        for bad in [5, -1, i32::MIN] {
            assert!(listed(5, 0, &[0, bad]).unwrap_err().message.contains(&bad.to_string()));
        }
    }
}
