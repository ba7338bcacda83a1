//! One collective call on arrays of any kind, compared with the model.

use crate::api_common::Rng;
use crate::model::{Inputs, Sample, WithOperator};
use rushmem::zerocopy::IntoBytes;
use rushmem::{SymRef, SymSlice, Team};

/// Elements around an array that must stay as they are.
const EDGE: usize = 3;

/// Two symmetric allocations that the calls of one team use.
pub(crate) struct Arena<'w, T: Sample> {
    pub(crate) one: SymSlice<'w, T>,
    pub(crate) other: SymSlice<'w, T>,
}

/// An array with an edge on both sides: a part of a symmetric allocation, or a vector.
enum Array<'a, T: Sample> {
    Symmetric(SymRef<'a, T>, usize),
    Private(Vec<T>, usize),
}

impl<'a, T: Sample> Array<'a, T> {
    /// `n` elements that begin like `values`.
    fn new(memory: &'a SymSlice<'_, T>, private: bool, values: &[T], n: usize) -> Array<'a, T> {
        let mut all = vec![T::make(77); n + 2 * EDGE];
        all[EDGE..EDGE + values.len()].copy_from_slice(values);
        if private {
            return Array::Private(all, n);
        }
        let part = memory.slice(..all.len()).unwrap();
        part.write(&all).unwrap();
        Array::Symmetric(part, n)
    }

    /// Its elements; the edges are as they were.
    #[track_caller]
    fn read(&self) -> Vec<T> {
        let (all, n) = match self {
            Array::Symmetric(part, n) => (part.to_vec().unwrap(), *n),
            Array::Private(all, n) => (all.clone(), *n),
        };
        let edge = T::make(77);
        let same = |value: &T| value.as_bytes() == edge.as_bytes();
        assert!(all[..EDGE].iter().all(same) && all[EDGE + n..].iter().all(same), "the edges were written");
        all[EDGE..EDGE + n].to_vec()
    }
}

/// Calls `$team.$method($dst, $src, ...)` on the arrays inside.
macro_rules! call {
    ($team:ident.$method:ident($dst:expr, $src:expr $(, $arg:expr)*)) => {
        call!(|to, from| $team.$method(to, from $(, $arg)*), $dst, $src)
    };
    (|$to:ident, $from:ident| $call:expr, $dst:expr, $src:expr) => {
        match (&mut $dst, &$src) {
            (Array::Symmetric(d, n), Array::Symmetric(s, m)) => {
                let ($to, $from) = (&d.slice(EDGE..EDGE + *n).unwrap(), &s.slice(EDGE..EDGE + *m).unwrap());
                $call
            }
            (Array::Symmetric(d, n), Array::Private(s, m)) => {
                let ($to, $from) = (&d.slice(EDGE..EDGE + *n).unwrap(), &s[EDGE..EDGE + *m]);
                $call
            }
            (Array::Private(d, n), Array::Symmetric(s, m)) => {
                let ($to, $from) = (&mut d[EDGE..EDGE + *n], &s.slice(EDGE..EDGE + *m).unwrap());
                $call
            }
            (Array::Private(d, n), Array::Private(s, m)) => {
                let ($to, $from) = (&mut d[EDGE..EDGE + *n], &s[EDGE..EDGE + *m]);
                $call
            }
        }
    };
}

/// A team, its memory, and who this PE is in it.
pub(crate) struct Step<'a, 'w, T: Sample> {
    pub(crate) team: &'a Team<'w>,
    pub(crate) arena: &'a Arena<'w, T>,
    /// The same on all members.
    pub(crate) rng: &'a mut Rng,
    /// Elements in all, at most.
    pub(crate) most: usize,
}

#[track_caller]
fn same<T: Sample>(what: &str, found: &[T], expected: &[T]) {
    if found.as_bytes() != expected.as_bytes() {
        let at = found.iter().zip(expected).position(|(a, b)| a.as_bytes() != b.as_bytes());
        let hex = |values: &[T], at: usize| format!("{:02x?}", values[at].as_bytes());
        let at = at.unwrap_or(found.len().min(expected.len()));
        panic!(
            "{what} of {}: element {at} of {} is {}, expected {}",
            std::any::type_name::<T>(),
            found.len(),
            hex(found, at),
            hex(expected, at)
        );
    }
}

impl<T: Sample> Step<'_, '_, T> {
    fn me(&self) -> usize {
        self.team.my_pe() as usize
    }

    fn members(&self) -> usize {
        self.team.n_pes() as usize
    }

    /// Elements of each member, where there are `blocks` of them in an array.
    fn size(&mut self, blocks: usize) -> usize {
        let most = (self.most / blocks).max(1);
        // Around what travels with a round, what a round carries, and what is combined at a time.
        let edges = [16 << 10, 64 << 10, 8 << 10].map(|bytes: usize| bytes / size_of::<T>());
        let edge = edges[self.rng.below(3)] / [1, blocks][self.rng.below(2)];
        let any = 1 + self.rng.below(most);
        let n = [0, 1, 2 + self.rng.below(70), 100, edge - 1, edge, edge + 1, any][self.rng.below(8)];
        n.min(most)
    }

    /// Which arrays are private here: on all members alike, or each as it comes.
    fn private(&mut self) -> [bool; 2] {
        let (all, each) = ([self.rng.below(2) == 0, self.rng.below(2) == 0], self.rng.below(4) == 0);
        let own = self.rng.next();
        if each {
            let mut own = Rng::new(own ^ self.me() as u64);
            [own.below(2) == 0, own.below(2) == 0]
        } else {
            all
        }
    }

    /// A call of each kind that moves data.
    pub(crate) fn moves(&mut self) {
        self.broadcast();
        self.fcollect();
        self.collect();
        self.alltoall();
        self.alltoalls();
        self.alltoallv();
    }

    fn arrays<'b>(&mut self, dst: usize, src: &[T], arena: &'b Arena<'_, T>) -> (Array<'b, T>, Array<'b, T>) {
        let [to, from] = self.private();
        (Array::new(&arena.one, to, &[], dst), Array::new(&arena.other, from, src, src.len()))
    }

    pub(crate) fn broadcast(&mut self) {
        let (inputs, n, root) = (Inputs::new(self.rng), self.size(1), self.rng.below(self.members()));
        let (team, arena, mine) = (self.team, self.arena, inputs.of::<T>(self.me(), n));
        let expected = inputs.of::<T>(root, n);
        let (mut dst, src) = self.arrays(n, &mine, arena);
        call!(team.broadcast(dst, src, root as u32)).unwrap();
        same("broadcast", &dst.read(), &expected);
        let mut data = mine;
        team.broadcast_in_place(&mut data, root as u32).unwrap();
        same("broadcast in place", &data, &expected);
    }

    fn fcollect(&mut self) {
        let (inputs, members) = (Inputs::new(self.rng), self.members());
        let n = self.size(members);
        let (team, arena, mine) = (self.team, self.arena, inputs.of::<T>(self.me(), n));
        let expected: Vec<T> = (0..members).flat_map(|i| inputs.of::<T>(i, n)).collect();
        let (mut dst, src) = self.arrays(members * n, &mine, arena);
        call!(team.fcollect(dst, src)).unwrap();
        same("fcollect", &dst.read(), &expected);
        // In place.
        let all = arena.one.slice(..members * n).unwrap();
        let part = all.slice(self.me() * n..(self.me() + 1) * n).unwrap();
        all.fill(T::make(1)).unwrap();
        part.write(&mine).unwrap();
        team.sync().unwrap();
        team.fcollect(&all, &part).unwrap();
        same("fcollect in place", &all.to_vec().unwrap(), &expected);
    }

    fn collect(&mut self) {
        let (inputs, members) = (Inputs::new(self.rng), self.members());
        let sizes: Vec<usize> = (0..members).map(|_| self.size(members)).collect();
        let all: usize = sizes.iter().sum();
        let (team, arena, mine) = (self.team, self.arena, inputs.of::<T>(self.me(), sizes[self.me()]));
        let expected: Vec<T> = (0..members).flat_map(|i| inputs.of::<T>(i, sizes[i])).collect();
        let (mut dst, src) = self.arrays(all, &mine, arena);
        assert_eq!(call!(team.collect(dst, src)).unwrap(), all);
        same("collect", &dst.read(), &expected);
    }

    fn alltoall(&mut self) {
        let (inputs, members, me) = (Inputs::new(self.rng), self.members(), self.me());
        let n = self.size(members);
        let (team, arena, mine) = (self.team, self.arena, inputs.of::<T>(me, members * n));
        let block = |i: usize| inputs.of::<T>(i, members * n)[me * n..(me + 1) * n].to_vec();
        let expected: Vec<T> = (0..members).flat_map(block).collect();
        let (mut dst, src) = self.arrays(members * n, &mine, arena);
        call!(team.alltoall(dst, src)).unwrap();
        same("alltoall", &dst.read(), &expected);
        let all = arena.one.slice(..members * n).unwrap();
        all.write(&mine).unwrap();
        team.sync().unwrap();
        team.alltoall(&all, &all).unwrap();
        same("alltoall in place", &all.to_vec().unwrap(), &expected);
    }

    fn alltoalls(&mut self) {
        let (inputs, members, me) = (Inputs::new(self.rng), self.members(), self.me());
        let strides = [1 + self.rng.below(3), 1 + self.rng.below(3)];
        let n = self.size(members * 3);
        let extent = |stride: usize| (members * n).saturating_sub(1) * stride + usize::from(n > 0);
        let values = |i: usize| inputs.of::<T>(i, extent(strides[1]));
        let (team, arena, mine) = (self.team, self.arena, values(me));
        let mut expected = vec![T::make(77); extent(strides[0])];
        for i in 0..members {
            let theirs = values(i);
            for k in 0..n {
                expected[(i * n + k) * strides[0]] = theirs[(me * n + k) * strides[1]];
            }
        }
        let (mut dst, src) = self.arrays(expected.len(), &mine, arena);
        call!(team.alltoalls(dst, src, strides[0], strides[1], n)).unwrap();
        same("alltoalls", &dst.read(), &expected);
    }

    fn alltoallv(&mut self) {
        let (inputs, members, me) = (Inputs::new(self.rng), self.members(), self.me());
        // From each to each, with gaps between blocks on both sides.
        let counts: Vec<Vec<usize>> =
            (0..members).map(|_| (0..members).map(|_| self.size(members * members)).collect()).collect();
        let gap = self.rng.below(2);
        let places = |sizes: &[usize]| -> Vec<usize> {
            let place = |at: &mut usize, n: &usize| {
                let here = *at;
                *at += n + gap;
                Some(here)
            };
            sizes.iter().scan(gap, place).collect()
        };
        let comes: Vec<usize> = (0..members).map(|i| counts[i][me]).collect();
        let (src_at, dst_at) = (places(&counts[me]), places(&comes));
        let whole = |sizes: &[usize]| sizes.iter().sum::<usize>() + gap * (members + 1);
        let values = |i: usize| inputs.of::<T>(i, whole(&counts[i]));
        let (team, arena, mine) = (self.team, self.arena, values(me));
        let mut expected = vec![T::make(77); whole(&comes)];
        for i in 0..members {
            let (theirs, at) = (values(i), places(&counts[i])[me]);
            expected[dst_at[i]..][..comes[i]].copy_from_slice(&theirs[at..][..comes[i]]);
        }
        let (mut dst, src) = self.arrays(expected.len(), &mine, arena);
        let came =
            call!(|to, from| team.alltoallv(to, &dst_at, from, &src_at, &counts[me]), dst, src).unwrap();
        assert_eq!(came, comes);
        same("alltoallv", &dst.read(), &expected);
    }

    /// Every reduction with an operator.
    fn reduce_by(&mut self, op: impl rushmem::Operator<T>, name: &'static str) {
        let (inputs, members, me) = (Inputs::new(self.rng), self.members(), self.me());
        let (team, arena) = (self.team, self.arena);
        let n = self.size(1);
        let mine = inputs.of::<T>(me, n);
        let expected = inputs.folded::<T>(name, 0..members, n);
        let (mut dst, src) = self.arrays(n, &mine, arena);
        call!(team.reduce(dst, src, op)).unwrap();
        same(name, &dst.read(), &expected);
        let (mut dst, src) = self.arrays(n, &mine, arena);
        call!(team.inscan(dst, src, op)).unwrap();
        same(&format!("inscan by {name}"), &dst.read(), &inputs.folded::<T>(name, 0..me + 1, n));
        let (mut dst, src) = self.arrays(n, &mine, arena);
        call!(team.exscan(dst, src, op)).unwrap();
        if me == 0 {
            assert!(dst.read().as_bytes().iter().all(|byte| *byte == 0), "the first one gets zeroes");
        } else {
            same(&format!("exscan by {name}"), &dst.read(), &inputs.folded::<T>(name, 0..me, n));
        }
        // In place, in either memory.
        let all = arena.one.slice(..n).unwrap();
        all.write(&mine).unwrap();
        team.sync().unwrap();
        team.reduce(&all, &all, op).unwrap();
        same(&format!("{name} in place"), &all.to_vec().unwrap(), &expected);
        self.scans_in_place(op, name);
        let mut own = mine;
        team.reduce_in_place(&mut own, op).unwrap();
        same(&format!("{name} in place, not symmetric"), &own, &expected);
        self.scatter_by(op, name);
    }

    fn scans_in_place(&mut self, op: impl rushmem::Operator<T>, name: &'static str) {
        let (inputs, me, n) = (Inputs::new(self.rng), self.me(), self.size(1));
        let (team, all) = (self.team, self.arena.one.slice(..n).unwrap());
        for exclusive in [false, true] {
            all.write(&inputs.of::<T>(me, n)).unwrap();
            team.sync().unwrap();
            if exclusive {
                team.exscan(&all, &all, op).unwrap();
            } else {
                team.inscan(&all, &all, op).unwrap();
            }
            let seen = all.to_vec().unwrap();
            if exclusive && me == 0 {
                assert!(seen.as_bytes().iter().all(|byte| *byte == 0), "the first one gets zeroes");
            } else {
                let wanted = inputs.folded::<T>(name, 0..me + usize::from(!exclusive), n);
                same(&format!("a scan in place by {name}, exclusive: {exclusive}"), &seen, &wanted);
            }
        }
    }

    fn scatter_by(&mut self, op: impl rushmem::Operator<T>, name: &'static str) {
        let (inputs, members, me) = (Inputs::new(self.rng), self.members(), self.me());
        let (team, arena) = (self.team, self.arena);
        let n = self.size(members);
        let mine = inputs.of::<T>(me, n * members);
        let expected = inputs.folded::<T>(name, 0..members, n * members)[me * n..(me + 1) * n].to_vec();
        let (mut dst, src) = self.arrays(n, &mine, arena);
        call!(team.reducescatter(dst, src, op)).unwrap();
        same(&format!("reducescatter by {name}"), &dst.read(), &expected);
        let all = arena.one.slice(..n * members).unwrap();
        all.write(&mine).unwrap();
        team.sync().unwrap();
        let first = all.slice([0, me * n][self.rng.below(2)]..).unwrap();
        let first = first.slice(..n).unwrap();
        team.reducescatter(&first, &all, op).unwrap();
        same(&format!("reducescatter by {name} in place"), &first.to_vec().unwrap(), &expected);
    }
}

/// One of a type's operators.
pub(crate) struct Reduce<'s, 'a, 'w, T: Sample> {
    pub(crate) step: &'s mut Step<'a, 'w, T>,
    /// How many come before it.
    pub(crate) left: usize,
}

impl<T: Sample> WithOperator<T> for Reduce<'_, '_, '_, T> {
    fn with(&mut self, op: impl rushmem::Operator<T>, name: &'static str) {
        if self.left == 0 {
            self.step.reduce_by(op, name);
        }
        self.left = self.left.wrapping_sub(1);
    }
}
