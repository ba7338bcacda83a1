//! One collective of a mixed program: where its arrays lie, what it leaves, and who makes it.

use rushmem::{Kernel, Launch, Result, Stream, Sum, SymRef, Team};

use super::memory::Array;
use crate::api_common::Rng;

/// As any_collective.cu numbers them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Which {
    Broadcast,
    Fcollect,
    Alltoall,
    Alltoalls,
    Reduce,
    ReduceScatter,
    Inscan,
    Exscan,
    Barrier,
}
use Which::*;

const EVERY: [Which; 9] =
    [Broadcast, Fcollect, Alltoall, Alltoalls, Reduce, ReduceScatter, Inscan, Exscan, Barrier];
/// Kernels, and how they are launched.
pub(super) const SCOPES: [&str; 4] = ["of_thread", "of_warp", "of_block", "of_grid"];
const LAUNCHES: [(u32, u32); 4] = [(1, 1), (1, 32), (1, 96), (2, 64)];
/// Of alltoalls, in elements: of the destination and of the source.
const STRIDES: (usize, usize) = (2, 3);

/// What all members pass: an array, and the place in it.
#[derive(Debug)]
pub(super) struct Call {
    which: Which,
    n: usize,
    root: usize,
    dst: (usize, usize),
    src: (usize, usize),
    /// The source is this member's part of the destination, at `src` of the first member.
    own_part: bool,
}

impl Call {
    /// A random one of arrays `dst` and `src`, where there is room: apart, or in place where the collective
    /// may be.
    pub(super) fn random(
        rng: &mut Rng,
        arrays: &[Array<'_>],
        members: usize,
        (dst, src): (usize, usize),
    ) -> Option<Call> {
        let which = EVERY[rng.below(EVERY.len())];
        let mut call =
            Call { which, n: 0, root: rng.below(members), dst: (dst, 0), src: (src, 0), own_part: false };
        let (room_dst, room_src) = (arrays[dst].len(), arrays[src].len());
        let (each_dst, each_src) = call.words(members, 1);
        let most = (room_dst / each_dst).min(room_src / each_src);
        call.n = if rng.below(3) == 0 { rng.below(most.min(9) + 1) } else { rng.below(most + 1) };
        let (words_dst, words_src) = call.words(members, call.n);
        if dst != src {
            call.dst.1 = rng.below(room_dst - words_dst + 1);
            call.src.1 = rng.below(room_src - words_src + 1);
            return Some(call);
        }
        let at = rng.below(room_dst - words_dst.max(words_src) + 1);
        (call.dst.1, call.src.1) = (at, at);
        call.own_part = which == Fcollect;
        (which != Alltoalls).then_some(call)
    }

    /// Words of the destination and of the source, where a block has `n`; blocks of alltoalls are extents.
    fn words(&self, members: usize, n: usize) -> (usize, usize) {
        match self.which {
            Fcollect => (members * n, n),
            Alltoall => (members * n, members * n),
            Alltoalls => (members * n * STRIDES.0, members * n * STRIDES.1),
            ReduceScatter => (n, members * n),
            _ => (n, n),
        }
    }

    /// Where the source of member `me` begins.
    fn src_at(&self, me: usize) -> usize {
        self.src.1 + if self.own_part { me * self.n } else { 0 }
    }

    /// What is in the members' memory after it.
    pub(super) fn model(&self, arrays: &mut [Array<'_>], pes: &[usize]) {
        let (n, (_, words)) = (self.n, self.words(pes.len(), self.n));
        let source = |(me, pe): (usize, &usize)| {
            let at = self.src_at(me);
            arrays[self.src.0].model[*pe][at..at + words].to_vec()
        };
        let inputs: Vec<Vec<u64>> = pes.iter().enumerate().map(source).collect();
        let sum = |members: std::ops::Range<usize>, from: usize| -> Vec<u64> {
            let word = |i: usize| members.clone().fold(0, |all: u64, m| all.wrapping_add(inputs[m][i]));
            (from..from + n).map(word).collect()
        };
        for (me, pe) in pes.iter().enumerate() {
            let (dst, at) = self.dst;
            let to = &mut arrays[dst].model[*pe];
            let result = match self.which {
                Broadcast => inputs[self.root].clone(),
                Fcollect => inputs.concat(),
                Alltoall => inputs.iter().flat_map(|input| input[me * n..(me + 1) * n].to_vec()).collect(),
                Alltoalls => {
                    for (from, input) in inputs.iter().enumerate() {
                        for k in 0..n {
                            to[at + (from * n + k) * STRIDES.0] = input[(me * n + k) * STRIDES.1];
                        }
                    }
                    continue;
                }
                Reduce => sum(0..pes.len(), 0),
                ReduceScatter => sum(0..pes.len(), me * n),
                Inscan => sum(0..me + 1, 0),
                Exscan => sum(0..me, 0),
                Barrier => Vec::new(),
            };
            to[at..at + result.len()].copy_from_slice(&result);
        }
    }

    fn parts<'a>(&self, team: &Team<'_>, arrays: &'a [Array<'_>]) -> (SymRef<'a, u64>, SymRef<'a, u64>) {
        let (to, from) = self.words(team.n_pes() as usize, self.n);
        let part = |array: usize, at: usize, words: usize| arrays[array].at().slice(at..at + words).unwrap();
        let src_at = self.src_at(team.my_pe() as usize);
        (part(self.dst.0, self.dst.1, to), part(self.src.0, src_at, from))
    }

    pub(super) fn by_host(&self, team: &Team<'_>, arrays: &[Array<'_>]) -> Result<()> {
        let (dst, src) = self.parts(team, arrays);
        match self.which {
            Broadcast => team.broadcast(&dst, &src, self.root as u32),
            Fcollect => team.fcollect(&dst, &src),
            Alltoall => team.alltoall(&dst, &src),
            Alltoalls => team.alltoalls(&dst, &src, STRIDES.0, STRIDES.1, self.n),
            Reduce => team.reduce(&dst, &src, Sum),
            ReduceScatter => team.reducescatter(&dst, &src, Sum),
            Inscan => team.inscan(&dst, &src, Sum),
            Exscan => team.exscan(&dst, &src, Sum),
            Barrier => team.barrier(),
        }
    }

    /// In the slot set of the stream's number.
    pub(super) fn by_stream(
        &self,
        team: &Team<'_>,
        arrays: &[Array<'_>],
        stream: &Stream<'_>,
        set: u32,
    ) -> Result<()> {
        let ((dst, src), t) = (self.parts(team, arrays), team.on(set));
        match self.which {
            Broadcast => stream.broadcast(t, &dst, &src, self.root as u32),
            Fcollect => stream.fcollect(t, &dst, &src),
            Alltoall => stream.alltoall(t, &dst, &src),
            Alltoalls => stream.alltoalls(t, &dst, &src, STRIDES, self.n),
            Reduce => stream.reduce(t, &dst, &src, Sum),
            ReduceScatter => stream.reducescatter(t, &dst, &src, Sum),
            Inscan => stream.inscan(t, &dst, &src, Sum),
            Exscan => stream.exscan(t, &dst, &src, Sum),
            Barrier => stream.barrier(t),
        }
    }

    /// By the kernel of scope `scope`.
    pub(super) fn by_kernel(
        &self,
        team: &Team<'_>,
        arrays: &[Array<'_>],
        (kernel, scope): (&Kernel<'_>, usize),
        (stream, set): (&Stream<'_>, u32),
    ) -> Result<()> {
        let (dst, src) = self.parts(team, arrays);
        let (blocks, threads) = LAUNCHES[scope];
        let args = (team, set, self.which as i32, &dst, &src, self.n as u64, self.root as i32);
        // SAFETY: parts of arrays that are as long as the call takes, which nobody else uses until the stream
        // is synchronised.
        unsafe { kernel.launch_on(Launch::new(blocks, threads), args, stream) }
    }
}
