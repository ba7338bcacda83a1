//! The ranks of a job that is spread over hosts: how they are started, and what they say.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::namespaces::Hosts;
use crate::programs::{self, Ended, Running};

/// The variable that tells a rank what to do.
pub(crate) const ROLE: &str = "HOSTS_TEST_ROLE";
/// How long a rank may take from its start to its end.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// The variable that tells a rank on which host each is, where they are not in blocks.
pub(crate) const PLACEMENT: &str = "HOSTS_TEST_PLACEMENT";

/// A job under way.
pub(crate) struct Job<'a> {
    hosts: &'a Hosts,
    /// The host of each rank.
    placement: Vec<usize>,
    ranks: Vec<Running>,
}

/// This program, to play `role`.
pub(crate) fn player(role: &str) -> Command {
    let mut command = programs::command(std::env::current_exe().expect("a test knows where it is"));
    command.args(["--exact", "role", "--nocapture", "--test-threads=1"]).env(ROLE, role);
    command
}

/// What `torchrun` gives rank `rank` of those in `placement`, which meet at `host`.
fn torchrun(rank: usize, placement: &[usize], host: &str, port: u16) -> Vec<(&'static str, String)> {
    let here = |ranks: &[usize]| ranks.iter().filter(|host| **host == placement[rank]).count().to_string();
    vec![
        ("RANK", rank.to_string()),
        ("WORLD_SIZE", placement.len().to_string()),
        ("LOCAL_RANK", here(&placement[..rank])),
        ("LOCAL_WORLD_SIZE", here(placement)),
        ("MASTER_ADDR", host.to_owned()),
        ("MASTER_PORT", port.to_string()),
    ]
}

/// So many hosts with so many ranks each, numbered through.
fn blocks((hosts, per_host): (u32, u32)) -> Vec<usize> {
    (0..hosts * per_host).map(|rank| (rank / per_host) as usize).collect()
}

pub(crate) fn text(placement: &[usize]) -> String {
    placement.iter().map(usize::to_string).collect::<Vec<_>>().join(",")
}

/// `rank 3`, `ranks 0-1, 3`.
fn ranges(ranks: &[usize]) -> String {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for &rank in ranks {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == rank => *last = rank,
            _ => runs.push((rank, rank)),
        }
    }
    let run = |(first, last): &(usize, usize)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    let texts: Vec<String> = runs.iter().map(run).collect();
    format!("{} {}", if ranks.len() == 1 { "rank" } else { "ranks" }, texts.join(", "))
}

impl<'a> Job<'a> {
    /// Starts it by torchrun's variables.
    #[track_caller]
    pub(crate) fn start(
        hosts: &'a Hosts,
        shape: (u32, u32),
        role: &str,
        environment: &[(&str, &str)],
    ) -> Job<'a> {
        Job::start_each(hosts, blocks(shape), || {
            let mut command = player(role);
            command.envs(environment.iter().copied());
            command
        })
    }

    /// The same with each rank on the host that `placement` says.
    #[track_caller]
    pub(crate) fn start_placed(
        hosts: &'a Hosts,
        placement: &[usize],
        role: &str,
        environment: &[(&str, &str)],
    ) -> Job<'a> {
        Job::start_each(hosts, placement.to_vec(), || {
            let mut command = player(role);
            command.envs(environment.iter().copied()).env(PLACEMENT, text(placement));
            command
        })
    }

    /// Starts another program than this one.
    #[track_caller]
    pub(crate) fn start_program(
        hosts: &'a Hosts,
        shape: (u32, u32),
        program: &Path,
        args: &[&str],
    ) -> Job<'a> {
        Job::start_each(hosts, blocks(shape), || {
            let mut command = programs::command(program);
            command.args(args);
            command
        })
    }

    #[track_caller]
    fn start_each(hosts: &'a Hosts, placement: Vec<usize>, program: impl Fn() -> Command) -> Job<'a> {
        // Each job of these hosts meets elsewhere, so that none hears of one before it.
        let (port, home) = (programs::free_port(), hosts.host(0).ip.to_string());
        let start = |rank: usize| {
            let mut command = program();
            command.envs(torchrun(rank, &placement, &home, port));
            hosts.host(placement[rank]).enter(&mut command);
            programs::start(&mut command)
        };
        let ranks = (0..placement.len()).map(start).collect();
        Job { hosts, placement, ranks }
    }

    /// Waits until every rank has said `word`.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, word: &str) {
        self.ranks.iter_mut().for_each(|rank| rank.wait_for(word, LIMIT));
    }

    /// Sends a signal to a rank.
    pub(crate) fn signal(&self, rank: u32, signal: i32) {
        self.ranks[rank as usize].signal(signal);
    }

    /// Everybody ends well.
    #[track_caller]
    pub(crate) fn end(self) -> Vec<Ended> {
        self.ranks.into_iter().map(|rank| rank.wait(LIMIT).ok()).collect()
    }

    /// Everybody ends well and says so.
    #[track_caller]
    pub(crate) fn ends_well(self) {
        self.end().into_iter().for_each(|ended| drop(ended.says(&["@end fine"])));
    }

    /// Everybody but the ranks of `host`, which are not looked at, ends within `limit` of `since` with an
    /// error that says `words`.
    #[track_caller]
    pub(crate) fn survivors_say(self, host: usize, words: &[&str], since: Instant, limit: Duration) {
        let placement = self.placement;
        for (rank, running) in self.ranks.into_iter().enumerate().filter(|(r, _)| placement[*r] != host) {
            complain(rank, running, words, since, limit);
        }
    }

    /// Everybody but the ranks of `host` ends within `limit` of `since` with an error that names one of them,
    /// whichever was the first that was known to be dead, and nobody else.
    #[track_caller]
    pub(crate) fn survivors_name(self, host: usize, since: Instant, limit: Duration) {
        let (placement, name) = (self.placement, self.hosts.host(host).name.clone());
        for (rank, running) in self.ranks.into_iter().enumerate().filter(|(r, _)| placement[*r] != host) {
            let last = complain(rank, running, &[" died: "], since, limit);
            for (before, _) in last.match_indices(" died: ") {
                let who = last[..before].rsplit("rank ").next().unwrap_or_default();
                assert!(
                    who.contains(&format!("(host {name}, ")),
                    "rank {rank} takes a living rank for dead: {last}"
                );
            }
        }
    }

    /// Everybody ends within `limit` of `since`, each with an error that names a host that it cannot hear,
    /// all ranks of it, after `cut` was cut off.
    #[track_caller]
    pub(crate) fn both_sides_say(self, cut: usize, since: Instant, limit: Duration) {
        let placement = self.placement;
        let hosts = 1 + placement.iter().max().expect("a rank");
        for (rank, running) in self.ranks.into_iter().enumerate() {
            let side = placement[rank];
            // A host that is cut off hears none of the others, and names the one that it misses first.
            let gone: Vec<usize> =
                if side == cut { (0..hosts).filter(|h| *h != cut).collect() } else { vec![cut] };
            let names: Vec<String> = gone
                .into_iter()
                .map(|host| {
                    let ranks: Vec<usize> = (0..placement.len()).filter(|r| placement[*r] == host).collect();
                    format!("host {} with {}", self.hosts.host(host).name, ranges(&ranks))
                })
                .collect();
            let last = complain(rank, running, &[], since, limit);
            assert!(
                names.iter().any(|name| last.contains(name)),
                "rank {rank} names none of {names:?}: {last}"
            );
        }
    }
}

/// The last words of a rank, which must be an error with all of `words` and come within `limit` of `since`.
#[track_caller]
fn complain(rank: usize, running: Running, words: &[&str], since: Instant, limit: Duration) -> String {
    let ended = running.wait(LIMIT);
    let took = since.elapsed();
    let last = ended.lines_with("@end ").last().map(|line| (*line).to_owned());
    let last = last.unwrap_or_else(|| panic!("rank {rank} had no last words: {ended}"));
    println!("rank {rank} after {:.2} s: {last}", took.as_secs_f64());
    assert!(last.contains("PeerDead"), "rank {rank}: {last}");
    assert!(words.iter().all(|word| last.contains(word)), "rank {rank} does not say {words:?}: {last}");
    assert!(took < limit, "rank {rank} took {took:?} of {limit:?}: {last}");
    last
}
