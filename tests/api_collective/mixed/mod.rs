//! Calls of the host, of streams and of kernels in one program, on teams that overlap, with puts, atomics,
//! allocations, registrations and frees between them: every PE makes the same random program, keeps all PEs'
//! memory in a serial model, and compares.
//!
//! A step of a stream or a kernel, and a put without waiting, returns before it is done. Its arrays are in
//! use until a step synchronises the stream, or is a barrier: meanwhile the others use other arrays.

mod call;
mod memory;

use rushmem::{Kernel, Module, Prepared, Result, Stream, Sum, Team, TeamConfig, World};
use rushmem_test_support::api_common::bench::made_quickly;

use crate::api_common::kill::{ended, one_of, ready};
use crate::api_common::{at_counts, longer, place, seed, seeded, Rng};
use call::{Call, SCOPES};
use memory::{Array, User};

const KERNELS: &str = include_str!("../../kernels/any_collective.cu");
const STREAMS: usize = 2;

/// Some PEs, and their team where this PE is one of them.
struct Group<'w> {
    pes: Vec<usize>,
    team: Option<Team<'w>>,
}

struct Program<'w> {
    world: &'w World,
    rng: Rng,
    arrays: Vec<Array<'w>>,
    groups: Vec<Group<'w>>,
    streams: Vec<Stream<'w>>,
    kernels: &'w [Kernel<'w>],
    /// Sources of puts that are under way.
    sources: Vec<Vec<u64>>,
}

impl<'w> Program<'w> {
    fn new(world: &'w World, rng: &Rng, kernels: &'w [Kernel<'w>]) -> Result<Program<'w>> {
        let streams = (0..STREAMS).map(|_| world.stream()).collect::<Result<_>>()?;
        let groups = vec![Group { pes: (0..world.n_pes() as usize).collect(), team: Some(world.team()) }];
        let (rng, arrays, sources) = (rng.fork(7u64), Vec::new(), Vec::new());
        let mut program = Program { world, rng, arrays, groups, streams, kernels, sources };
        (0..4).try_for_each(|_| program.allocate())?;
        Ok(program)
    }

    fn me(&self) -> usize {
        self.world.my_pe().number() as usize
    }

    /// One of the arrays that `user` may use, and perhaps uses already.
    fn array(&mut self, user: User) -> Option<usize> {
        let free = |array: &Array<'_>| array.user == User::Nobody || array.user == user;
        let free: Vec<usize> = (0..self.arrays.len()).filter(|i| free(&self.arrays[*i])).collect();
        (!free.is_empty()).then(|| free[self.rng.below(free.len())])
    }

    fn done(&mut self, user: User) {
        self.arrays.iter_mut().filter(|array| array.user == user).for_each(|array| array.user = User::Nobody);
        if user == User::Put {
            self.sources.clear();
        }
    }

    fn barrier(&mut self) -> Result<()> {
        self.world.barrier_all()?;
        self.done(User::Put);
        Ok(())
    }

    fn allocate(&mut self) -> Result<()> {
        let len = [1 + self.rng.below(64), 1 + self.rng.below(3000), 4096 + self.rng.below(9000)]
            [self.rng.below(3)];
        self.arrays.push(Array::allocated(self.world, len)?);
        self.done(User::Put);
        Ok(())
    }

    fn register(&mut self) -> Result<()> {
        // GPUs register memory of their own.
        if !place::on_gpus() {
            self.arrays.push(Array::registered(self.world, 1 + self.rng.below(12))?);
        }
        Ok(())
    }

    /// The array, or one that nobody uses.
    fn free(&mut self, but: Option<usize>) -> Result<()> {
        let Some(at) = self.array(User::Nobody).filter(|at| self.arrays.len() > 4 && Some(*at) != but) else {
            return self.barrier();
        };
        self.arrays.swap_remove(at).free()?;
        self.done(User::Put);
        Ok(())
    }

    /// A team of some PEs in any order.
    fn split(&mut self) -> Result<()> {
        let mut pes: Vec<usize> = (0..self.world.n_pes() as usize).collect();
        for i in (1..pes.len()).rev() {
            pes.swap(i, self.rng.below(i + 1));
        }
        pes.truncate(1 + self.rng.below(pes.len()));
        let members: Vec<u32> = pes.iter().map(|pe| *pe as u32).collect();
        let config = TeamConfig::default().slot_sets(STREAMS as u32);
        let team = self.world.team().configured(config).listed(&members)?;
        assert_eq!(team.is_some(), pes.contains(&self.me()));
        self.groups.push(Group { pes, team });
        Ok(())
    }

    fn free_team(&mut self) -> Result<()> {
        if self.groups.len() > 2 {
            (0..STREAMS).try_for_each(|s| self.synchronize(s))?;
            let at = 1 + self.rng.below(self.groups.len() - 1);
            if let Some(team) = self.groups.swap_remove(at).team {
                team.free()?;
            }
        }
        Ok(())
    }

    fn synchronize(&mut self, stream: usize) -> Result<()> {
        self.streams[stream].synchronize()?;
        self.done(User::Stream(stream));
        Ok(())
    }

    /// Compares what nobody uses.
    fn look(&self, step: usize, what: &str) -> Result<()> {
        let me = self.me();
        for (i, array) in self.arrays.iter().enumerate().filter(|(_, array)| array.user == User::Nobody) {
            let (seen, wanted) = (array.at().to_vec()?, &array.model[me]);
            let wrong: Vec<usize> = (0..seen.len()).filter(|at| seen[*at] != wanted[*at]).collect();
            if let Some(at) = wrong.first() {
                panic!(
                    "step {step} ({what}): word {at} of array {i} ({} words) on PE {me} is {:#x}, not {:#x}; \
                     {} words are wrong",
                    seen.len(),
                    seen[*at],
                    wanted[*at],
                    wrong.len()
                );
            }
        }
        Ok(())
    }

    /// A put of one PE, or an atomic of all, into one PE's array, behind a barrier. A later step completes
    /// it: one of those that promise to.
    fn put(&mut self) -> Result<&'static str> {
        self.barrier()?;
        let Some(at) = self.array(User::Nobody) else { return Ok("no put") };
        let n_pes = self.world.n_pes() as usize;
        let (from, to) = (self.rng.below(n_pes), self.rng.below(n_pes));
        let first = self.rng.below(self.arrays[at].len());
        let n = 1 + self.rng.below(self.arrays[at].len() - first);
        let data: Vec<u64> = (0..n).map(|_| self.rng.next()).collect();
        let (kind, me) = (self.rng.below(4), self.me());
        let (array, there) = (&mut self.arrays[at], self.world.pe(to as u32)?);
        array.user = User::Put;
        if kind == 0 {
            let word = &mut array.model[to][first];
            *word = (0..n_pes).fold(*word, |all, pe| all.wrapping_add(data[0]).wrapping_add(pe as u64));
            array.at().at(first, there).add(data[0].wrapping_add(me as u64))?;
        } else {
            array.model[to][first..first + n].copy_from_slice(&data);
            let target = array.at().slice(first..first + n)?;
            self.sources.push(data);
            let data = &self.sources[self.sources.len() - 1];
            if me == from && kind == 1 {
                // SAFETY: kept in `sources` until the next barrier.
                unsafe { target.put_nbi(data, there) }?;
            } else if me == from {
                target.put(data, there)?;
            }
        }
        Ok(match self.rng.below(6) {
            0 => {
                self.allocate()?;
                "a put before an allocation"
            }
            1 => {
                self.free(Some(at))?;
                "a put before a free"
            }
            2 => {
                self.barrier()?;
                "a put before a barrier"
            }
            _ => "a put",
        })
    }

    /// A collective of some team by the host, a stream or a kernel on it.
    fn collective(&mut self) -> Result<String> {
        let group = self.rng.below(self.groups.len());
        let (who, scope) = (self.rng.below(1 + 2 * STREAMS), self.rng.below(SCOPES.len()));
        let (user, by) = match who {
            0 => (User::Nobody, "the host".to_owned()),
            _ if who % 2 == 1 => (User::Stream((who - 1) / 2), "a call on".to_owned()),
            _ => (User::Stream((who - 1) / 2), format!("a kernel {} on", SCOPES[scope])),
        };
        let Some(arrays) = self.array(user).zip(self.array(user)) else {
            return Ok("nothing is free".into());
        };
        let (pes, team) = (&self.groups[group].pes, &self.groups[group].team);
        let Some(call) = Call::random(&mut self.rng, &self.arrays, pes.len(), arrays) else {
            return Ok("nothing that may be in place".into());
        };
        call.model(&mut self.arrays, pes);
        (self.arrays[arrays.0].user, self.arrays[arrays.1].user) = (user, user);
        if let Some(team) = team {
            match user {
                User::Stream(s) if who % 2 == 1 => {
                    call.by_stream(team, &self.arrays, &self.streams[s], s as u32)?;
                }
                User::Stream(s) => {
                    let kernel = (&self.kernels[scope], scope);
                    call.by_kernel(team, &self.arrays, kernel, (&self.streams[s], s as u32))?;
                }
                _ => call.by_host(team, &self.arrays)?,
            }
        }
        Ok(format!("{call:?} of {pes:?} by {by} {user:?}"))
    }

    fn step(&mut self) -> Result<String> {
        let what = match self.rng.below(24) {
            0 => {
                self.allocate()?;
                "an allocation"
            }
            1 => {
                self.register()?;
                "a registration"
            }
            2 | 3 => {
                self.free(None)?;
                "a free"
            }
            4 if self.groups.len() < 7 => {
                self.split()?;
                "a split"
            }
            5 => {
                self.free_team()?;
                "a team's free"
            }
            6 | 7 => {
                let stream = self.rng.below(STREAMS);
                self.synchronize(stream)?;
                "a stream synchronised"
            }
            8..=11 => self.put()?,
            _ => return self.collective(),
        };
        Ok(what.to_owned())
    }

    fn run(mut self, steps: usize) -> Result<()> {
        for step in 0..steps {
            let what = self.step()?;
            self.look(step, &what)?;
        }
        (0..STREAMS).try_for_each(|s| self.synchronize(s))?;
        self.barrier()?;
        self.look(steps, "the end")?;
        self.world.barrier_all()?;
        self.arrays.into_iter().try_for_each(Array::free)
    }
}

/// What streams launch later is loaded now, and the kernels are.
fn load(world: &World) -> Result<Module<'_>> {
    let all = [
        Prepared::broadcast(),
        Prepared::fcollect(),
        Prepared::alltoall(),
        Prepared::alltoalls::<u64>(),
        Prepared::reduce::<u64, _>(Sum),
        Prepared::reducescatter::<u64, _>(Sum),
        Prepared::inscan::<u64, _>(Sum),
        Prepared::exscan::<u64, _>(Sum),
        Prepared::barrier(),
    ];
    world.team().prepare(&all)?;
    world.load(made_quickly(KERNELS))
}

#[test]
fn calls_of_the_host_of_streams_and_of_kernels_in_one_program() {
    at_counts(&[1, 2, 3, 5], |world, rng| {
        let module = load(world).unwrap();
        let kernels = SCOPES.map(|name| module.kernel(name).unwrap());
        Program::new(world, rng, &kernels).unwrap().run(place::litmus_rounds(longer(150) as usize)).unwrap();
    });
}

/// Whatever it is in: the others end, and say who died.
#[test]
fn killed_in_a_mixed_program() {
    if !place::processes("killed_in_a_mixed_program") {
        return;
    }
    for _ in 0..longer(3) {
        one_of(3).with(seeded(place::pes(3))).kills(|| {
            let world = World::init().expect("nobody dies during start-up here");
            let module = load(&world).unwrap();
            let kernels = SCOPES.map(|name| module.kernel(name).unwrap());
            ready();
            let program = Program::new(&world, &Rng::new(seed()), &kernels);
            ended(&program.and_then(|program| program.run(usize::MAX)).expect_err("a PE is killed"))
        });
    }
}
