//! Who has come, who is missing, what every rank must learn: the rendezvous without its sockets. Every
//! change leaves messages in `outbox`, addressed to clients by the number that the server gave them.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use rushmem_bootstrap_abi::{BootError, BootErrorKind, Result};

use crate::auth::random;
use crate::endpoint::Address;
use crate::messages::{who, Join, Neighbour, ToRank};
use crate::ranks::{named, neighbours};

/// How far the job has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Stage {
    /// Ranks are missing.
    Gathering,
    /// All know their neighbours and connect with them.
    Connecting,
    /// All are connected.
    Done,
    /// It will not come up.
    Failed(BootError),
}

/// A rank that will not come any more.
#[derive(Debug)]
pub(super) struct Absent {
    /// How many ranks its job has.
    pub(super) n: u32,
    pub(super) why: String,
}

struct Member {
    client: u64,
    join: Join,
    meshed: bool,
}

impl Member {
    fn who(&self) -> String {
        who(self.join.rank, &self.join.host, self.join.pid)
    }
}

pub(super) struct Job {
    stage: Stage,
    /// Number of ranks, and the rank that said so first.
    size: Option<(u32, u32)>,
    members: BTreeMap<u32, Member>,
    unmeshed: u32,
    deadline: Option<(Instant, Duration)>,
    place: Address,
    home: (String, u32),
    hosted: Option<u32>,
    /// A process that could not join because of what it is, for the verdict if ranks stay away.
    turned_away: Option<String>,
    pub(super) outbox: Vec<(u64, ToRank)>,
}

impl Job {
    pub(super) fn new(place: Address, host: String, pid: u32) -> Job {
        Job {
            stage: Stage::Gathering,
            size: None,
            members: BTreeMap::new(),
            unmeshed: 0,
            deadline: None,
            place,
            home: (host, pid),
            hosted: None,
            turned_away: None,
            outbox: Vec::new(),
        }
    }

    pub(super) fn stage(&self) -> &Stage {
        &self.stage
    }

    pub(super) fn n_joined(&self) -> u32 {
        self.members.len() as u32
    }

    /// Something at `from` wanted to join and cannot, because of `why`.
    pub(super) fn turned_away(&mut self, from: &str, why: &str) {
        self.turned_away = Some(format!("; a process at {from} was turned away: {why}"));
    }

    /// When [`Job::expire`] wants to be called.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match self.stage {
            Stage::Gathering | Stage::Connecting => self.deadline.map(|d| d.0),
            _ => None,
        }
    }

    /// Ends the job for all ranks; a rank that comes later learns of it as well.
    pub(super) fn fail(&mut self, error: BootError) {
        if matches!(self.stage, Stage::Done | Stage::Failed(_)) {
            return;
        }
        for member in self.members.values() {
            self.outbox.push((member.client, ToRank::Failed(error.clone())));
        }
        self.stage = Stage::Failed(error);
    }

    /// A process that holds the token wants to be a rank.
    pub(super) fn join(&mut self, client: u64, join: Join, now: Instant) {
        let me = who(join.rank, &join.host, join.pid);
        match &self.stage {
            Stage::Gathering => {}
            Stage::Failed(e) => return self.outbox.push((client, ToRank::Failed(e.clone()))),
            Stage::Connecting | Stage::Done => {
                let e = mismatch(join.rank, format!("{me} comes to a job whose ranks are all there already: start each rank once, and make a new unique ID for each job"));
                return self.outbox.push((client, ToRank::Failed(e)));
            }
        }
        if let Err(error) = self.admit(&join, &me) {
            self.outbox.push((client, ToRank::Failed(error.clone())));
            return self.fail(error);
        }
        let (rank, limit) = (join.rank, join.limit);
        if self.hosted.is_none() && join.host == self.home.0 && join.pid == self.home.1 {
            self.hosted = Some(rank);
            self.outbox.extend(self.members.values().map(|m| (m.client, ToRank::Hosted(rank))));
        }
        let (host, pid) = self.home.clone();
        self.outbox.push((client, ToRank::Welcome { host, pid, rank: self.hosted }));
        let n = join.n_ranks;
        self.members.insert(rank, Member { client, join, meshed: false });
        // A limit of centuries must not overflow the clock.
        let at = now + limit.min(Duration::from_secs(10 * 365 * 86400));
        if self.deadline.is_none_or(|d| at < d.0) {
            self.deadline = Some((at, limit));
        }
        if self.members.len() == n as usize {
            self.tell_tables(n);
        }
    }

    fn admit(&mut self, join: &Join, me: &str) -> Result<()> {
        let (n, first) = *self.size.get_or_insert((join.n_ranks, join.rank));
        if join.n_ranks != n {
            let there = self.members.get(&first).map_or_else(|| format!("rank {first}"), Member::who);
            return Err(mismatch(
                join.rank,
                format!("{me} was given {} ranks, {there} of {n}: give all the same number", join.n_ranks),
            ));
        }
        if join.rank >= n {
            return Err(mismatch(
                join.rank,
                format!("{me} comes to a job of {n} ranks (0 to {})", n.max(1) - 1),
            ));
        }
        if let Some(other) = self.members.get(&join.rank) {
            return Err(mismatch(
                join.rank,
                format!(
                    "rank {} came twice, as {} and as {me}: give every process its own rank",
                    join.rank,
                    other.who()
                ),
            ));
        }
        Ok(())
    }

    fn tell_tables(&mut self, n: u32) {
        let session = match random() {
            Ok(bytes) => bytes,
            Err(e) => return self.fail(e),
        };
        self.stage = Stage::Connecting;
        // A rank that cannot connect knows best why: let it speak first.
        self.deadline = self.deadline.map(|(at, limit)| (at + Duration::from_secs(1), limit));
        self.unmeshed = n;
        let mut homes: HashMap<u64, Vec<u32>> = HashMap::new();
        for (rank, member) in &self.members {
            homes.entry(member.join.home).or_default().push(*rank);
        }
        let homes: HashMap<u64, String> =
            homes.into_iter().map(|(home, ranks)| (home, named(&ranks))).collect();
        for (rank, member) in &self.members {
            let entry = |peer: &u32| {
                let j = &self.members[peer].join;
                let (host, mates) = (j.host.clone(), homes[&j.home].clone());
                Neighbour { rank: *peer, addr: j.addr, host, home: j.home, mates, pid: j.pid }
            };
            let neighbours = neighbours(*rank, n).iter().map(entry).collect();
            self.outbox.push((member.client, ToRank::Table { session, neighbours }));
        }
    }

    /// Fails the job if it waits for one of these.
    pub(super) fn check(&mut self, absent: &BTreeMap<u32, Absent>) {
        let (Stage::Gathering, Some((n, _))) = (&self.stage, self.size) else { return };
        let awaited = absent.iter().find(|(rank, a)| a.n == n && !self.members.contains_key(rank));
        if let Some((rank, Absent { why, .. })) = awaited {
            self.fail(BootError::new(BootErrorKind::PeerDead, why).with_rank(*rank));
        }
    }

    /// `rank` is connected with its neighbours.
    pub(super) fn meshed(&mut self, client: u64, rank: u32) {
        let Some(member) = self.members.get_mut(&rank).filter(|m| m.client == client) else { return };
        if self.stage == Stage::Connecting && !std::mem::replace(&mut member.meshed, true) {
            self.unmeshed -= 1;
            if self.unmeshed == 0 {
                self.stage = Stage::Done;
                self.outbox.extend(self.members.values().map(|m| (m.client, ToRank::Go)));
            }
        }
    }

    /// The connection with `rank` is gone, because of `why`.
    pub(super) fn lost(&mut self, client: u64, rank: u32, why: &str) {
        // A second process that came as the same rank was refused; its end means nothing.
        let Some(member) = self.members.get(&rank).filter(|m| m.client == client) else { return };
        let text = format!("{} died or left while the job was starting: {why}", member.who());
        self.fail(BootError::new(BootErrorKind::PeerDead, text).with_rank(rank));
    }

    /// `rank` says that it gives up.
    pub(super) fn left(&mut self, client: u64, rank: u32, error: BootError) {
        let Some(member) = self.members.get(&rank).filter(|m| m.client == client) else { return };
        let message = format!("{} gave up while the job was starting: {}", member.who(), error.message);
        self.fail(BootError { kind: error.kind, rank: error.rank.or(Some(rank)), message });
    }

    /// Fails the job if its limit has passed.
    pub(super) fn expire(&mut self, now: Instant) {
        let Some((at, limit)) = self.deadline.filter(|d| d.0 <= now && self.deadline().is_some()) else {
            return;
        };
        debug_assert!(at <= now);
        let (n, _) = self.size.expect("a deadline comes with the first member");
        let there = self.members.len();
        let seconds = limit.as_secs_f64();
        let (missing, text): (Vec<u32>, String) = if self.stage == Stage::Gathering {
            let missing: Vec<u32> = (0..n).filter(|r| !self.members.contains_key(r)).collect();
            let text = format!(
                "{} of {n} never came within {seconds:.1} s ({there} came): check that they were started, were given the same unique ID or address, and reach {}{}",
                named(&missing), self.place, self.turned_away.as_deref().unwrap_or_default()
            );
            (missing, text)
        } else {
            let slow: Vec<u32> = self.members.values().filter(|m| !m.meshed).map(|m| m.join.rank).collect();
            let text = format!(
                "{} of {n} did not connect with all neighbours within {seconds:.1} s: check that the hosts reach each other (interface choice: {})",
                named(&slow), crate::net::IFNAME_VARIABLE
            );
            (slow, text)
        };
        let error = BootError::new(BootErrorKind::Timeout, text);
        self.fail(match missing[..] {
            [only] => error.with_rank(only),
            _ => error,
        });
    }
}

fn mismatch(rank: u32, text: String) -> BootError {
    BootError::new(BootErrorKind::Mismatch, text).with_rank(rank)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn join(rank: u32, n: u32) -> Join {
        let addr = Address::Net(([127, 0, 0, 1], 1000 + rank as u16).into());
        let (host, limit) = ("h".into(), Duration::from_secs(9));
        // Three ranks a host.
        Join { rank, n_ranks: n, limit, addr, host, home: u64::from(rank / 3), pid: 100 + rank }
    }

    fn job() -> Job {
        Job::new(Address::Net(([127, 0, 0, 1], 5).into()), "h".into(), 101)
    }

    fn failure(job: &Job) -> (BootErrorKind, Option<u32>, String) {
        match job.stage() {
            Stage::Failed(e) => (e.kind, e.rank, e.message.clone()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_job_comes_up() {
        let (mut job, now) = (job(), Instant::now());
        for rank in [2, 1, 0, 3] {
            job.join(u64::from(rank) + 50, join(rank, 4), now);
        }
        assert_eq!(*job.stage(), Stage::Connecting);
        assert!(job.outbox.contains(&(52, ToRank::Hosted(1))));
        let tables: Vec<_> = job.outbox.iter().filter(|m| matches!(m.1, ToRank::Table { .. })).collect();
        assert_eq!(tables.len(), 4);
        for (_, table) in tables {
            let ToRank::Table { neighbours, .. } = table else { unreachable!("they are tables") };
            for n in neighbours {
                assert_eq!(n.mates, if n.rank == 3 { "rank 3" } else { "ranks 0-2" });
            }
        }
        for rank in [0, 1, 1, 2, 7] {
            job.meshed(u64::from(rank) + 50, rank);
        }
        job.meshed(9, 3); // not from rank 3's client
        assert_eq!(*job.stage(), Stage::Connecting);
        job.meshed(53, 3);
        assert_eq!(*job.stage(), Stage::Done);
        assert_eq!(job.outbox.iter().filter(|m| m.1 == ToRank::Go).count(), 4);
        job.lost(50, 0, "closed");
        assert_eq!(*job.stage(), Stage::Done);
    }

    #[test]
    fn the_missing_are_named() {
        let (mut job, now) = (job(), Instant::now());
        for rank in [0, 1, 4] {
            job.join(rank.into(), join(rank, 7), now);
        }
        job.expire(now + Duration::from_secs(8));
        assert_eq!(*job.stage(), Stage::Gathering);
        job.expire(now + Duration::from_secs(9));
        let (kind, rank, text) = failure(&job);
        assert_eq!((kind, rank), (BootErrorKind::Timeout, None));
        assert!(text.starts_with("ranks 2-3, 5-6 of 7 never came"), "{text}");
        job.outbox.clear();
        job.join(9, join(2, 7), now); // too late, but not left waiting
        assert!(matches!(job.outbox[..], [(9, ToRank::Failed(_))]));
    }

    #[test]
    fn one_that_will_not_come_is_named_as_soon_as_others_wait_for_it() {
        let (mut job, now) = (job(), Instant::now());
        let absent = |n| BTreeMap::from([(2, Absent { n, why: "PE 2 has ended".into() })]);
        job.check(&absent(3));
        assert_eq!(*job.stage(), Stage::Gathering, "nobody waits");
        job.join(0, join(0, 3), now);
        job.check(&absent(4));
        assert_eq!(*job.stage(), Stage::Gathering, "that is a rank of another job");
        job.outbox.clear();
        job.check(&absent(3));
        assert_eq!(failure(&job), (BootErrorKind::PeerDead, Some(2), "PE 2 has ended".into()));
        assert!(matches!(job.outbox[..], [(0, ToRank::Failed(_))]));
        // One that has come is not awaited, whatever becomes of it.
        let mut job = self::job();
        job.join(2, join(2, 3), now);
        job.check(&absent(3));
        assert_eq!(*job.stage(), Stage::Gathering);
    }

    #[test]
    fn disagreements_are_named() {
        for (second, part) in
            [(join(1, 5), "was given 5 ranks"), (join(4, 4), "0 to 3"), (join(2, 4), "came twice")]
        {
            let mut job = job();
            job.join(1, join(2, 4), Instant::now());
            job.join(2, second.clone(), Instant::now());
            let (kind, rank, text) = failure(&job);
            assert_eq!((kind, rank), (BootErrorKind::Mismatch, Some(second.rank)));
            assert!(text.contains(part), "{text}");
            assert_eq!(job.outbox.iter().filter(|m| matches!(m.1, ToRank::Failed(_))).count(), 2);
        }
    }

    #[test]
    fn deaths_and_farewells_are_named() {
        let mut dead = job();
        dead.join(1, join(0, 2), Instant::now());
        dead.lost(7, 0, "reset");
        assert_eq!(*dead.stage(), Stage::Gathering);
        dead.lost(1, 0, "reset");
        assert!(failure(&dead).2.starts_with("rank 0 (host h, pid 100) died"));
        let mut left = job();
        left.join(1, join(0, 2), Instant::now());
        left.left(1, 0, BootError::new(BootErrorKind::Io, "no route to rank 1").with_rank(1));
        assert_eq!((failure(&left).0, failure(&left).1), (BootErrorKind::Io, Some(1)));
    }
}
