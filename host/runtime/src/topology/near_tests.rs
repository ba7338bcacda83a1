//! The numbering of near PEs against what it stands for: same node, and the slot's place in the window.

use super::*;
use crate::testing::random::Random;
use crate::topology::nodes::tests::cards;
use crate::topology::nodes::Nodes;

/// That of the default limit of a heap, 64 GiB.
const STRIDE: u64 = 1 << 37;

/// What PE `me` sees of the PEs of its node for which `maps` holds.
fn near(nodes: &Nodes, me: usize, n: usize, maps: impl Fn(usize) -> bool) -> Near {
    let pes = nodes.members(me).iter().enumerate().filter(|(_, pe)| maps(**pe)).map(|(slot, pe)| (*pe, slot));
    Near::new(me, n, &pes.collect::<Vec<_>>(), STRIDE)
}

/// The shape that a set of numbers is to have, worked out from the numbers alone.
fn expected(pes: &[usize]) -> &'static str {
    let gaps: Vec<usize> = pes.windows(2).map(|two| two[1] - two[0]).collect();
    match gaps.first() {
        None => "run",
        Some(gap) if gaps.iter().any(|other| other != gap) => "table",
        Some(1) => "run",
        Some(_) => "steps",
    }
}

fn name(near: &Near) -> &'static str {
    match near.shape() {
        NearForm::Run => "run",
        NearForm::Steps(_) => "steps",
        NearForm::Table(_) => "table",
    }
}

/// The address by the formula that kernels have (impl/route.h), from the fields that they are given.
fn as_kernels_do(near: &Near, me: i32, pe: i32, n: i32) -> Option<u64> {
    let affine = u64::from((pe.wrapping_sub(me) as u32).wrapping_mul((near.apart() >> 32) as u32)) << 32;
    let (first, count) = near.run();
    if (pe as u32).wrapping_sub(first as u32) < count as u32 {
        return Some(affine);
    }
    match near.shape() {
        NearForm::Run => None,
        NearForm::Steps(Steps { first, count, inverse, shift, .. }) => {
            let times = (pe as u32).wrapping_sub(*first as u32).wrapping_mul(*inverse);
            let index = times >> shift | times << (shift.wrapping_neg() & 31);
            (index < *count).then_some(affine)
        }
        NearForm::Table(table) => {
            ((pe as u32) < n as u32).then(|| table[pe as usize]).filter(|distance| *distance != NOT_NEAR)
        }
    }
}

/// Everything that is promised of one placement, for each of its PEs. `mapped`: whether `me` can map `pe`'s
/// memory.
fn check(placement: &[u32], mapped: impl Fn(usize, usize) -> bool) -> Vec<&'static str> {
    let (nodes, n) = (Nodes::new(&cards(placement)), placement.len());
    let mut shapes = Vec::new();
    for me in 0..n {
        let near = near(&nodes, me, n, |pe| mapped(me, pe));
        let set: Vec<usize> =
            (0..n).filter(|pe| placement[*pe] == placement[me] && mapped(me, *pe)).collect();
        assert_eq!(near.count(), set.len());
        assert_eq!(set.len(), (0..n).filter(|pe| near.contains(*pe as i32)).count());
        for pe in 0..n {
            let is_near = set.contains(&pe);
            let slots = nodes.slot(pe) as i64 - nodes.slot(me) as i64;
            let distance = is_near.then(|| (slots as u64).wrapping_mul(STRIDE));
            assert_eq!(near.distance(pe as i32), distance, "PE {me} to {pe}: {near}, of {placement:?}");
            assert_eq!(
                as_kernels_do(&near, me as i32, pe as i32, n as i32),
                distance,
                "PE {me} to {pe}: {near}"
            );
            assert_eq!(near.slot(pe as i32), is_near.then(|| nodes.slot(pe)));
            // And back.
            assert_eq!(nodes.members(me).get(nodes.slot(pe)) == Some(&pe), placement[me] == placement[pe]);
        }
        for nobody in [-1, n as i32, n as i32 + 7, i32::MAX, i32::MIN, i32::MIN + 3] {
            assert_eq!(near.distance(nobody), None, "PE {nobody} of {near}");
            assert_eq!(as_kernels_do(&near, me as i32, nobody, n as i32), None, "PE {nobody} of {near}");
        }
        let (first, count) = near.run();
        let run: Vec<usize> = (first as usize..).take(count as usize).collect();
        assert!(run.contains(&me) && run.iter().all(|pe| set.contains(pe)), "{run:?} of {set:?}");
        assert!(
            !set.contains(&(first as usize + count as usize))
                && (first == 0 || !set.contains(&(first as usize - 1)))
        );
        // Whose slots go on otherwise than their numbers needs the table, too.
        let slots: Vec<usize> = set.iter().map(|pe| nodes.slot(*pe)).collect();
        let even = slots.windows(2).all(|two| two[1] - two[0] == slots[1] - slots[0]);
        assert_eq!(name(&near), if even { expected(&set) } else { "table" }, "{near}");
        shapes.push(name(&near));
    }
    shapes
}

#[test]
fn near_is_who_is_on_the_same_node_wherever_its_numbers_are() {
    let mut random = Random::new("placements");
    for round in 0..400 {
        let (n, hosts) = (1 + random.below(64), 1 + random.below(8));
        let host: Vec<u32> = match round % 4 {
            // Blocked, in turn, in turn by blocks, and anyhow.
            0 => (0..n).map(|pe| (pe / n.div_ceil(hosts)) as u32).collect(),
            1 => (0..n).map(|pe| (pe % hosts) as u32).collect(),
            2 => {
                let block = 1 + random.below(4);
                (0..n).map(|pe| (pe / block % hosts) as u32).collect()
            }
            _ => (0..n).map(|_| random.below(hosts) as u32).collect(),
        };
        check(&host, |_, _| true);
        // GPUs that are no peers: some pairs of a host cannot map each other.
        let salt = random.next();
        let apart =
            |a: usize, b: usize| Random::seeded(salt ^ (a.min(b) * 64 + a.max(b)) as u64).below(3) == 0;
        check(&host, |me, pe| me == pe || !apart(me, pe));
    }
}

#[test]
fn shapes_are_the_cheapest_that_serve() {
    let shapes = |placement: &[u32]| check(placement, |_, _| true);
    assert_eq!(shapes(&[0, 0, 1, 1]), ["run"; 4]);
    assert_eq!(shapes(&[0, 1, 0, 1]), ["steps"; 4]);
    assert_eq!(shapes(&[0, 1, 2, 0, 1, 2, 0, 1]), ["steps"; 8]);
    assert_eq!(shapes(&[0, 1, 1, 0, 2]), ["steps", "run", "run", "steps", "run"]);
    assert_eq!(shapes(&[0, 0, 1, 0]), ["table", "table", "run", "table"]);
    // Every third GPU of a host is out of reach of the others: numbers and slots go on alike.
    let odd = |me: usize, pe: usize| me % 2 == pe % 2;
    assert_eq!(check(&[0; 6], odd), ["steps"; 6]);
}

#[test]
fn steps_of_any_size_are_exact() {
    for step in [2usize, 3, 4, 5, 6, 7, 12, 32, 48, 96, 1000, (1 << 20) + 1, 31 << 5] {
        let pes: Vec<(usize, usize)> = (0..20).map(|i| (7 + i * step, i)).collect();
        let near = Near::new(7 + 9 * step, usize::MAX, &pes, STRIDE);
        assert!(matches!(near.shape(), NearForm::Steps(s) if s.step as usize == step), "{near}");
        for (pe, slot) in &pes {
            let distance = (*slot as u64).wrapping_sub(9).wrapping_mul(STRIDE);
            assert_eq!(near.distance(*pe as i32), Some(distance), "step {step}, slot {slot}");
            for other in [pe - 1, pe + 1, pe + step / 2] {
                assert_eq!(
                    near.contains(other as i32),
                    pes.iter().any(|(pe, _)| *pe == other),
                    "{other}, step {step}"
                );
            }
        }
        assert!(!near.contains((7 + 20 * step) as i32) && !near.contains(7 - step as i32));
    }
    // More powers of two than windows are units apart: by a table.
    for step in [64usize, 192, 1 << 20] {
        let near = Near::new(0, step + 1, &[(0, 0), (step, 1)], STRIDE);
        assert!(matches!(near.shape(), NearForm::Table(_)) && near.distance(step as i32) == Some(STRIDE));
        assert_eq!(as_kernels_do(&near, 0, step as i32, step as i32 + 1), Some(STRIDE));
    }
}

/// Many PEs as threads of one process, whose addresses hold no larger windows.
#[test]
fn windows_side_by_side_go_by_a_table() {
    let stride = RUSHMEM_NEAR_UNIT / 4;
    for (pes, others) in
        [(&[(0, 0), (1, 1), (2, 2), (3, 3)][..], 4), (&[(0, 0), (2, 1), (4, 2)], 5), (&[(1, 0)], 2)]
    {
        for (me, own) in pes {
            let near = Near::new(*me, others, pes, stride);
            for pe in -1..=others as i32 {
                let slot = pes.iter().find(|(other, _)| *other as i32 == pe).map(|(_, slot)| *slot as u64);
                let distance = slot.map(|slot| slot.wrapping_sub(*own as u64).wrapping_mul(stride));
                assert_eq!(near.distance(pe), distance, "PE {me} to {pe}: {near}");
                assert_eq!(as_kernels_do(&near, *me as i32, pe, others as i32), distance, "PE {me} to {pe}");
            }
        }
    }
}

#[test]
fn a_person_reads_which_they_are() {
    let text =
        |placement: &[u32]| near(&Nodes::new(&cards(placement)), 0, placement.len(), |_| true).to_string();
    assert_eq!(text(&[0, 0, 0, 1]), "PEs 0-2, a run");
    assert_eq!(text(&[0, 1, 0, 1]), "PEs 0, 2, 2 apart");
    assert_eq!(text(&[0, 0, 1, 0]), "PEs 0-1, 3, by a table");
    assert_eq!(text(&[0, 1]), "PE 0, a run");
}
