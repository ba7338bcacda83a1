//! A listener's connections that have not proved to belong to the job: strangers, and members on their way
//! in. When there is no more room, one is dropped. A full set never keeps a listener from accepting, so
//! members are never queued behind strangers.
//!
//! The source (a host, a local process) with most connections loses one: the oldest that has sent nothing,
//! else the oldest. A member says hello with its first packet, so it is never among the silent ones. It stays
//! for a round trip: a stranger that says hello, too, must fill the set within that time to push it out, and
//! then it comes again.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::{Duration, Instant};

use nix::sys::resource::{getrlimit, Resource};

use crate::endpoint::Source;

/// Most connections at a time, where descriptors allow.
const MOST: usize = 4096;
const LEAST: usize = 32;

struct Connection {
    source: Source,
    greeted: bool,
}

/// One source's connections in the order in which they came; those that have moved on are dropped when met.
#[derive(Default)]
struct Group {
    silent: VecDeque<u64>,
    greeted: VecDeque<u64>,
    n: usize,
}

/// See the top of the file. Connections have the numbers that their server gave them, which are never used
/// twice.
pub(crate) struct Pending {
    room: usize,
    connections: HashMap<u64, Connection>,
    groups: HashMap<Source, Group>,
    /// Sources by how many connections they have.
    by_count: BTreeSet<(usize, Source)>,
    arrivals: VecDeque<(Instant, u64)>,
}

/// Half of the descriptors that this process may have; a server that finds none left drops a connection.
pub(crate) fn room() -> usize {
    let files = getrlimit(Resource::RLIMIT_NOFILE).map_or(1024, |(soft, _)| soft);
    usize::try_from(files / 2).unwrap_or(MOST).clamp(LEAST, MOST)
}

impl Pending {
    pub(crate) fn new(room: usize) -> Pending {
        Pending {
            room,
            connections: HashMap::new(),
            groups: HashMap::new(),
            by_count: BTreeSet::new(),
            arrivals: VecDeque::new(),
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.connections.len() >= self.room
    }

    /// How many are here.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.connections.len()
    }

    pub(crate) fn enter(&mut self, id: u64, source: Source, now: Instant) {
        self.connections.insert(id, Connection { source, greeted: false });
        self.arrivals.push_back((now, id));
        let group = self.groups.entry(source).or_default();
        group.silent.push_back(id);
        self.by_count.remove(&(group.n, source));
        group.n += 1;
        self.by_count.insert((group.n, source));
    }

    /// A proper hello has come from `id`.
    pub(crate) fn greeted(&mut self, id: u64) {
        let Some(connection) = self.connections.get_mut(&id).filter(|g| !g.greeted) else { return };
        connection.greeted = true;
        if let Some(group) = self.groups.get_mut(&connection.source) {
            group.greeted.push_back(id);
        }
    }

    /// `id` is no connection any more: proved, or gone.
    pub(crate) fn leave(&mut self, id: u64) {
        let Some(Connection { source, .. }) = self.connections.remove(&id) else { return };
        let Some(group) = self.groups.get_mut(&source) else { return };
        self.by_count.remove(&(group.n, source));
        group.n -= 1;
        if group.n == 0 {
            self.groups.remove(&source);
        } else {
            self.by_count.insert((group.n, source));
            // Entries of connections that have left must not pile up where none is ever dropped.
            if group.silent.len() + group.greeted.len() > 4 * group.n + 64 {
                let connections = &self.connections;
                group.silent.retain(|id| connections.get(id).is_some_and(|g| !g.greeted));
                group.greeted.retain(|id| connections.contains_key(id));
            }
        }
        if self.arrivals.len() > 4 * self.connections.len() + 64 {
            let connections = &self.connections;
            self.arrivals.retain(|(_, id)| connections.contains_key(id));
        }
    }

    /// The connection to drop next.
    pub(crate) fn next_to_drop(&mut self) -> Option<u64> {
        let (_, source) = *self.by_count.last()?;
        let group = self.groups.get_mut(&source)?;
        while let Some(id) = group.silent.front() {
            if self.connections.get(id).is_some_and(|g| !g.greeted) {
                return Some(*id);
            }
            group.silent.pop_front();
        }
        while let Some(id) = group.greeted.front() {
            if self.connections.contains_key(id) {
                return Some(*id);
            }
            group.greeted.pop_front();
        }
        None
    }

    /// One that has been here for `limit`.
    pub(crate) fn overdue(&mut self, now: Instant, limit: Duration) -> Option<u64> {
        self.oldest().filter(|(since, _)| *since + limit <= now).map(|(_, id)| id)
    }

    /// When [`Pending::overdue`] will have one.
    pub(crate) fn next(&mut self, limit: Duration) -> Option<Instant> {
        self.oldest().map(|(since, _)| since + limit)
    }

    fn oldest(&mut self) -> Option<(Instant, u64)> {
        while let Some((since, id)) = self.arrivals.front() {
            if self.connections.contains_key(id) {
                return Some((*since, *id));
            }
            self.arrivals.pop_front();
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Source = Source::Process(1);

    fn host(last: u8) -> Source {
        Source::Host([10, 0, 0, last].into())
    }

    #[test]
    fn the_oldest_silent_connection_of_the_largest_source_goes() {
        let (mut pending, now) = (Pending::new(6), Instant::now());
        for (id, source) in [(1, host(1)), (2, host(2)), (3, host(2)), (4, host(2)), (5, HERE)] {
            pending.enter(id, source, now);
        }
        pending.greeted(2);
        assert!(!pending.is_full());
        pending.enter(6, host(3), now);
        assert!(pending.is_full());
        for want in [3, 4] {
            assert_eq!(pending.next_to_drop(), Some(want), "silent ones of the source with three");
            pending.leave(want);
            pending.enter(want + 10, host(2), now);
            pending.greeted(want + 10);
        }
        assert_eq!(pending.next_to_drop(), Some(2), "all have said hello, so the oldest");
        pending.leave(2);
        pending.leave(2);
        pending.leave(13);
        // One of each is left; either may go, but one must.
        assert!(pending.next_to_drop().is_some());
        [1, 5, 6, 14].into_iter().for_each(|id| pending.leave(id));
        assert_eq!((pending.next_to_drop(), pending.len()), (None, 0));
        assert!(pending.groups.is_empty() && pending.by_count.is_empty());
    }

    #[test]
    fn limits_are_kept_in_order_of_arrival() {
        let (mut pending, now) = (Pending::new(9), Instant::now());
        let limit = Duration::from_secs(5);
        assert_eq!(pending.next(limit), None);
        for id in 0..3 {
            pending.enter(id, HERE, now + Duration::from_secs(id));
        }
        pending.leave(0);
        assert_eq!(pending.next(limit), Some(now + Duration::from_secs(6)));
        assert_eq!(pending.overdue(now + Duration::from_secs(5), limit), None);
        assert_eq!(pending.overdue(now + Duration::from_secs(6), limit), Some(1));
    }

    /// A million that come and go leave nothing behind.
    #[test]
    fn nothing_piles_up() {
        let (mut pending, now) = (Pending::new(100), Instant::now());
        pending.enter(0, HERE, now);
        for id in 1..200_000 {
            pending.enter(id, if id % 3 == 0 { host(1) } else { HERE }, now);
            if id % 2 == 0 {
                pending.greeted(id);
            }
            pending.leave(id);
        }
        let queued: usize = pending.groups.values().map(|g| g.silent.len() + g.greeted.len()).sum();
        assert!(pending.len() == 1 && queued < 100 && pending.arrivals.len() < 100, "{queued}");
    }
}
