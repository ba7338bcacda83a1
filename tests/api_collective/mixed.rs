//! Calls of the host, of streams and of kernels in one program, on teams that overlap, with puts, atomics,
//! allocations and frees between them: every PE makes the same random program, keeps all PEs' memory in a
//! serial model, and compares.
//!
//! A step of a stream or a kernel returns before it is done. Its arrays belong to the stream until a step
//! synchronises it: meanwhile the others use other arrays.

use rushmem::{Kernel, Launch, Prepared, Stream, Sum, SymRef, SymSlice, Team, TeamConfig, World};
use rushmem_test_support::api_common::bench::made_quickly;

use crate::api_common::{at_counts, longer, place, Rng};

const KERNELS: &str = include_str!("../kernels/any_collective.cu");

/// As any_collective.cu numbers them.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Which {
    Broadcast,
    Fcollect,
    Alltoall,
    Reduce,
    ReduceScatter,
    Inscan,
    Exscan,
    Barrier,
}
use Which::*;

const EVERY: [Which; 8] = [Broadcast, Fcollect, Alltoall, Reduce, ReduceScatter, Inscan, Exscan, Barrier];
const SCOPES: [&str; 4] = ["of_thread", "of_warp", "of_block", "of_grid"];
const STREAMS: usize = 2;

/// A symmetric array, and what it holds on every PE.
struct Array<'w> {
    slice: SymSlice<'w, u64>,
    model: Vec<Vec<u64>>,
    /// The stream whose work uses it.
    stream: Option<usize>,
}

/// Some PEs, and their team where this PE is one of them.
struct Group<'w> {
    pes: Vec<usize>,
    team: Option<Team<'w>>,
}

/// One call: what all members pass, and where in the arrays.
#[derive(Debug)]
struct Call {
    which: Which,
    n: usize,
    root: usize,
    dst: (usize, usize),
    src: (usize, usize),
}

struct Program<'w> {
    world: &'w World,
    rng: Rng,
    arrays: Vec<Array<'w>>,
    groups: Vec<Group<'w>>,
    streams: Vec<Stream<'w>>,
    kernels: &'w [Kernel<'w>],
}

impl<'w> Program<'w> {
    fn new(world: &'w World, rng: &mut Rng, kernels: &'w [Kernel<'w>]) -> Program<'w> {
        let streams = (0..STREAMS).map(|_| world.stream().unwrap()).collect();
        let everybody = Group { pes: (0..world.n_pes() as usize).collect(), team: Some(world.team()) };
        let rng = rng.fork(7u64);
        let mut program =
            Program { world, rng, arrays: Vec::new(), groups: vec![everybody], streams, kernels };
        (0..4).for_each(|_| program.allocate());
        program
    }

    fn me(&self) -> usize {
        self.world.my_pe().number() as usize
    }

    fn allocate(&mut self) {
        let len = [1 + self.rng.below(64), 1 + self.rng.below(3000), 4096 + self.rng.below(9000)]
            [self.rng.below(3)];
        let slice = self.world.alloc::<u64>(len).unwrap();
        let model = vec![vec![0; len]; self.world.n_pes() as usize];
        self.arrays.push(Array { slice, model, stream: None });
    }

    fn free(&mut self) {
        let free: Vec<usize> = (0..self.arrays.len()).filter(|i| self.arrays[*i].stream.is_none()).collect();
        if self.arrays.len() < 4 || free.is_empty() {
            return;
        }
        let array = self.arrays.swap_remove(free[self.rng.below(free.len())]);
        array.slice.free().unwrap();
    }

    /// A team of some PEs in any order.
    fn split(&mut self) {
        let mut pes: Vec<usize> = (0..self.world.n_pes() as usize).collect();
        for i in (1..pes.len()).rev() {
            pes.swap(i, self.rng.below(i + 1));
        }
        pes.truncate(1 + self.rng.below(pes.len()));
        let members: Vec<u32> = pes.iter().map(|pe| *pe as u32).collect();
        let config = TeamConfig::default().slot_sets(STREAMS as u32);
        let team = self.world.team().configured(config).listed(&members).unwrap();
        assert_eq!(team.is_some(), pes.contains(&self.me()));
        self.groups.push(Group { pes, team });
    }

    fn unsplit(&mut self) {
        if self.groups.len() > 2 {
            (0..STREAMS).for_each(|s| self.synchronize(s));
            let at = 1 + self.rng.below(self.groups.len() - 1);
            if let Some(team) = self.groups.swap_remove(at).team {
                team.free().unwrap();
            }
        }
    }

    fn synchronize(&mut self, stream: usize) {
        self.streams[stream].synchronize().unwrap();
        let done = self.arrays.iter_mut().filter(|array| array.stream == Some(stream));
        done.for_each(|array| array.stream = None);
    }

    /// Compares what no stream uses.
    fn look(&self, step: usize, what: &str) {
        let me = self.me();
        for (i, array) in self.arrays.iter().enumerate().filter(|(_, array)| array.stream.is_none()) {
            let (seen, wanted) = (array.slice.to_vec().unwrap(), &array.model[me]);
            if let Some(at) = (0..seen.len()).find(|at| seen[*at] != wanted[*at]) {
                let wrong = (0..seen.len()).filter(|at| seen[*at] != wanted[*at]).count();
                panic!(
                    "step {step} ({what}): word {at} of array {i} ({} words) on PE {me} is {:#x}, not {:#x}; {wrong} \
                     words are wrong",
                    seen.len(),
                    seen[at],
                    wanted[at]
                );
            }
        }
    }

    /// A put or an atomic of one PE into another's array, between two meetings: the second is one of those
    /// that promise to complete it.
    fn put(&mut self) -> &'static str {
        let free: Vec<usize> = (0..self.arrays.len()).filter(|i| self.arrays[*i].stream.is_none()).collect();
        if free.is_empty() {
            return "no put";
        }
        let (at, n_pes) = (free[self.rng.below(free.len())], self.world.n_pes() as usize);
        let (from, to) = (self.rng.below(n_pes), self.rng.below(n_pes));
        let len = self.arrays[at].slice.len();
        let first = self.rng.below(len);
        let n = 1 + self.rng.below(len - first);
        let data: Vec<u64> = (0..n).map(|_| self.rng.next()).collect();
        self.world.barrier_all().unwrap();
        let (array, to_pe) = (&mut self.arrays[at], self.world.pe(to as u32).unwrap());
        let atomic = self.rng.below(3) == 0;
        if atomic {
            for pe in 0..n_pes {
                array.model[to][first] = array.model[to][first].wrapping_add(data[0] + pe as u64);
            }
            let mine = data[0].wrapping_add(u64::from(self.world.my_pe().number()));
            array.slice.at(first, to_pe).add(mine).unwrap();
        } else {
            array.model[to][first..first + n].copy_from_slice(&data);
            if self.world.my_pe().number() as usize == from {
                array.slice.slice(first..first + n).unwrap().put(&data, to_pe).unwrap();
            }
        }
        match self.rng.below(4) {
            0 => {
                self.allocate();
                "a put before an allocation"
            }
            1 if self.arrays.len() > 4 => {
                let others = self.arrays.iter().enumerate();
                let last = others
                    .filter(|(i, array)| *i != at && array.stream.is_none())
                    .map(|(i, _)| i)
                    .next_back();
                match last {
                    Some(i) => self.arrays.swap_remove(i).slice.free().unwrap(),
                    None => self.world.barrier_all().unwrap(),
                }
                "a put before a free"
            }
            _ => {
                self.world.barrier_all().unwrap();
                "a put before a barrier"
            }
        }
    }

    /// A collective of some team by the host, a stream or a kernel on it.
    fn collective(&mut self) -> String {
        let group = self.rng.below(self.groups.len());
        let (who, scope) = (self.rng.below(1 + 2 * STREAMS), self.rng.below(SCOPES.len()));
        let stream = (who > 0).then(|| (who - 1) / 2);
        let which = EVERY[self.rng.below(EVERY.len())];
        let usable: Vec<usize> = (0..self.arrays.len())
            .filter(|i| self.arrays[*i].stream.is_none() || self.arrays[*i].stream == stream)
            .collect();
        let (dst, src) = (self.rng.below(usable.len().max(1)), self.rng.below(usable.len().max(1)));
        let Some((dst, src)) = usable.get(dst).zip(usable.get(src)).map(|(d, s)| (*d, *s)) else {
            return "nothing is free".into();
        };
        let Some(call) = self.call(which, self.groups[group].pes.len(), dst, src) else {
            return format!("{which:?} found no room");
        };
        self.model(&call, group);
        let by = match (stream, who % 2) {
            (None, _) => "the host".to_owned(),
            (Some(s), 1) => format!("stream {s}"),
            (Some(s), _) => format!("a kernel {} on stream {s}", SCOPES[scope]),
        };
        if let Some(stream) = stream {
            self.arrays[dst].stream = Some(stream);
            self.arrays[src].stream = Some(stream);
        }
        if let Some(team) = &self.groups[group].team {
            match (stream, who % 2) {
                (None, _) => self.by_host(team, &call),
                (Some(s), 1) => self.by_stream(team, s, &call),
                (Some(s), _) => self.by_kernel(team, s, scope, &call),
            }
        }
        format!("{call:?} of {:?} by {by}", self.groups[group].pes)
    }

    /// Places for a call: apart, or the same where the collective may work in place.
    fn call(&mut self, which: Which, members: usize, dst: usize, src: usize) -> Option<Call> {
        let (blocks_dst, blocks_src) = match which {
            Fcollect => (members, 1),
            Alltoall => (members, members),
            ReduceScatter => (1, members),
            _ => (1, 1),
        };
        let root = self.rng.below(members);
        let (room_dst, room_src) = (self.arrays[dst].slice.len(), self.arrays[src].slice.len());
        if dst == src {
            let same = matches!(which, Broadcast | Alltoall | Reduce | Inscan | Exscan | Barrier);
            let most = room_dst / blocks_dst.max(blocks_src);
            let n = self.rng.below(most + 1);
            let at = self.rng.below(room_dst - n * blocks_dst + 1);
            return same.then_some(Call { which, n, root, dst: (dst, at), src: (src, at) });
        }
        let most = (room_dst / blocks_dst).min(room_src / blocks_src);
        let n =
            if self.rng.below(3) == 0 { self.rng.below(most.min(9) + 1) } else { self.rng.below(most + 1) };
        let dst_at = self.rng.below(room_dst - n * blocks_dst + 1);
        let src_at = self.rng.below(room_src - n * blocks_src + 1);
        Some(Call { which, n, root, dst: (dst, dst_at), src: (src, src_at) })
    }

    fn model(&mut self, call: &Call, group: usize) {
        let (pes, n) = (&self.groups[group].pes, call.n);
        let blocks = if matches!(call.which, Alltoall | ReduceScatter) { pes.len() } else { 1 };
        let (src, first) = call.src;
        let inputs: Vec<Vec<u64>> =
            pes.iter().map(|pe| self.arrays[src].model[*pe][first..first + n * blocks].to_vec()).collect();
        let sum = |members: std::ops::Range<usize>, from: usize| -> Vec<u64> {
            (from..from + n)
                .map(|i| members.clone().fold(0, |all: u64, m| all.wrapping_add(inputs[m][i])))
                .collect()
        };
        for (me, pe) in pes.iter().enumerate() {
            let result = match call.which {
                Broadcast => inputs[call.root].clone(),
                Fcollect => inputs.concat(),
                Alltoall => inputs.iter().flat_map(|input| input[me * n..(me + 1) * n].to_vec()).collect(),
                Reduce => sum(0..pes.len(), 0),
                ReduceScatter => sum(0..pes.len(), me * n),
                Inscan => sum(0..me + 1, 0),
                Exscan => sum(0..me, 0),
                Barrier => Vec::new(),
            };
            let (dst, at) = call.dst;
            self.arrays[dst].model[*pe][at..at + result.len()].copy_from_slice(&result);
        }
    }

    fn by_host(&self, team: &Team<'_>, call: &Call) {
        let (dst, src) = self.parts(call, team.n_pes() as usize);
        match call.which {
            Broadcast => team.broadcast(&dst, &src, call.root as u32),
            Fcollect => team.fcollect(&dst, &src),
            Alltoall => team.alltoall(&dst, &src),
            Reduce => team.reduce(&dst, &src, Sum),
            ReduceScatter => team.reducescatter(&dst, &src, Sum),
            Inscan => team.inscan(&dst, &src, Sum),
            Exscan => team.exscan(&dst, &src, Sum),
            Barrier => team.barrier(),
        }
        .unwrap();
    }

    fn by_stream(&self, team: &Team<'_>, s: usize, call: &Call) {
        let (dst, src) = self.parts(call, team.n_pes() as usize);
        let (stream, t) = (&self.streams[s], team.on(s as u32));
        match call.which {
            Broadcast => stream.broadcast(t, &dst, &src, call.root as u32),
            Fcollect => stream.fcollect(t, &dst, &src),
            Alltoall => stream.alltoall(t, &dst, &src),
            Reduce => stream.reduce(t, &dst, &src, Sum),
            ReduceScatter => stream.reducescatter(t, &dst, &src, Sum),
            Inscan => stream.inscan(t, &dst, &src, Sum),
            Exscan => stream.exscan(t, &dst, &src, Sum),
            Barrier => stream.barrier(t),
        }
        .unwrap();
    }

    fn by_kernel(&self, team: &Team<'_>, s: usize, scope: usize, call: &Call) {
        let (dst, src) = self.parts(call, team.n_pes() as usize);
        let launch = [Launch::new(1, 1), Launch::new(1, 32), Launch::new(1, 96), Launch::new(2, 64)][scope];
        let args = (team, s as u32, call.which as i32, &dst, &src, call.n as u64, call.root as i32);
        // SAFETY: parts of arrays that are as long as the call takes, which nobody else uses until the stream
        // is synchronised.
        unsafe { self.kernels[scope].launch_on(launch, args, &self.streams[s]) }.unwrap();
    }

    fn parts(&self, call: &Call, members: usize) -> (SymRef<'_, u64>, SymRef<'_, u64>) {
        let (to, from) = match call.which {
            Fcollect => (members, 1),
            Alltoall => (members, members),
            ReduceScatter => (1, members),
            _ => (1, 1),
        };
        let part = |(array, at): (usize, usize), blocks: usize| {
            self.arrays[array].slice.slice(at..at + call.n * blocks).unwrap()
        };
        (part(call.dst, to), part(call.src, from))
    }

    fn run(&mut self, steps: usize) {
        for step in 0..steps {
            let what = match self.rng.below(20) {
                0 => {
                    self.allocate();
                    "an allocation".to_owned()
                }
                1 => {
                    self.free();
                    "a free".to_owned()
                }
                2 if self.groups.len() < 7 => {
                    self.split();
                    "a split".to_owned()
                }
                3 => {
                    self.unsplit();
                    "a team's free".to_owned()
                }
                4 | 5 => {
                    let stream = self.rng.below(STREAMS);
                    self.synchronize(stream);
                    format!("stream {stream} synchronised")
                }
                6..=8 => self.put().to_owned(),
                _ => self.collective(),
            };
            self.look(step, &what);
        }
        (0..STREAMS).for_each(|s| self.synchronize(s));
        self.look(steps, "the end");
        self.world.barrier_all().unwrap();
    }
}

#[test]
fn calls_of_the_host_of_streams_and_of_kernels_in_one_program() {
    at_counts(&[1, 2, 3, 5], |world, rng| {
        let module = world.load(made_quickly(KERNELS)).unwrap();
        let kernels: Vec<Kernel<'_>> = SCOPES.iter().map(|name| module.kernel(name).unwrap()).collect();
        let all = [
            Prepared::broadcast(),
            Prepared::fcollect(),
            Prepared::alltoall(),
            Prepared::reduce::<u64, _>(Sum),
            Prepared::reducescatter::<u64, _>(Sum),
            Prepared::inscan::<u64, _>(Sum),
            Prepared::exscan::<u64, _>(Sum),
            Prepared::barrier(),
        ];
        world.team().prepare(&all).unwrap();
        Program::new(world, rng, &kernels).run(place::litmus_rounds(longer(150) as usize));
    });
}
