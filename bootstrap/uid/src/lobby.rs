//! Who is at a listener and has not proved to belong to the job: strangers, and members on their way in. Who
//! goes when there is no more room is decided here, so that members are never queued behind strangers: a full
//! lobby never keeps a listener from accepting.
//!
//! The source (a host, a local process) that has most guests gives one up: the oldest that has said nothing,
//! else the oldest. A member says hello with its first packet, so it is never among the silent; it stays for
//! a round trip, so a stranger that says hello, too, must fill the lobby within that time to push it out, and
//! then it comes again.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::{Duration, Instant};

use nix::sys::resource::{getrlimit, Resource};

use crate::endpoint::Source;

/// Most guests at a time, where descriptors allow.
const MOST: usize = 4096;
const LEAST: usize = 32;

struct Guest {
    source: Source,
    greeted: bool,
}

/// One source's guests in the order in which they came; those that have moved on are dropped when met.
#[derive(Default)]
struct Group {
    silent: VecDeque<u64>,
    greeted: VecDeque<u64>,
    n: usize,
}

/// See the top of the file. Guests have the numbers that their server gave them, which are never used twice.
pub(crate) struct Lobby {
    room: usize,
    guests: HashMap<u64, Guest>,
    groups: HashMap<Source, Group>,
    /// Sources by how many guests they have.
    crowds: BTreeSet<(usize, Source)>,
    arrivals: VecDeque<(Instant, u64)>,
}

/// Half of the descriptors that this process may have; a server that finds none left drops a guest.
pub(crate) fn room() -> usize {
    let files = getrlimit(Resource::RLIMIT_NOFILE).map_or(1024, |(soft, _)| soft);
    usize::try_from(files / 2).unwrap_or(MOST).clamp(LEAST, MOST)
}

impl Lobby {
    pub(crate) fn new(room: usize) -> Lobby {
        Lobby {
            room,
            guests: HashMap::new(),
            groups: HashMap::new(),
            crowds: BTreeSet::new(),
            arrivals: VecDeque::new(),
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.guests.len() >= self.room
    }

    /// How many are here.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.guests.len()
    }

    pub(crate) fn enter(&mut self, id: u64, source: Source, now: Instant) {
        self.guests.insert(id, Guest { source, greeted: false });
        self.arrivals.push_back((now, id));
        let group = self.groups.entry(source).or_default();
        group.silent.push_back(id);
        self.crowds.remove(&(group.n, source));
        group.n += 1;
        self.crowds.insert((group.n, source));
    }

    /// A proper hello has come from `id`.
    pub(crate) fn greeted(&mut self, id: u64) {
        let Some(guest) = self.guests.get_mut(&id).filter(|g| !g.greeted) else { return };
        guest.greeted = true;
        if let Some(group) = self.groups.get_mut(&guest.source) {
            group.greeted.push_back(id);
        }
    }

    /// `id` is no guest any more: proved, or gone.
    pub(crate) fn leave(&mut self, id: u64) {
        let Some(Guest { source, .. }) = self.guests.remove(&id) else { return };
        let Some(group) = self.groups.get_mut(&source) else { return };
        self.crowds.remove(&(group.n, source));
        group.n -= 1;
        if group.n == 0 {
            self.groups.remove(&source);
        } else {
            self.crowds.insert((group.n, source));
            // What has moved on must not pile up where nobody is ever asked to go.
            if group.silent.len() + group.greeted.len() > 4 * group.n + 64 {
                let guests = &self.guests;
                group.silent.retain(|id| guests.get(id).is_some_and(|g| !g.greeted));
                group.greeted.retain(|id| guests.contains_key(id));
            }
        }
        if self.arrivals.len() > 4 * self.guests.len() + 64 {
            let guests = &self.guests;
            self.arrivals.retain(|(_, id)| guests.contains_key(id));
        }
    }

    /// The guest to drop next.
    pub(crate) fn victim(&mut self) -> Option<u64> {
        let (_, source) = *self.crowds.last()?;
        let group = self.groups.get_mut(&source)?;
        while let Some(id) = group.silent.front() {
            if self.guests.get(id).is_some_and(|g| !g.greeted) {
                return Some(*id);
            }
            group.silent.pop_front();
        }
        while let Some(id) = group.greeted.front() {
            if self.guests.contains_key(id) {
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

    /// When [`Lobby::overdue`] will have one.
    pub(crate) fn next(&mut self, limit: Duration) -> Option<Instant> {
        self.oldest().map(|(since, _)| since + limit)
    }

    fn oldest(&mut self) -> Option<(Instant, u64)> {
        while let Some((since, id)) = self.arrivals.front() {
            if self.guests.contains_key(id) {
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
    fn the_oldest_silent_guest_of_the_greatest_crowd_goes() {
        let (mut lobby, now) = (Lobby::new(6), Instant::now());
        for (id, source) in [(1, host(1)), (2, host(2)), (3, host(2)), (4, host(2)), (5, HERE)] {
            lobby.enter(id, source, now);
        }
        lobby.greeted(2);
        assert!(!lobby.is_full());
        lobby.enter(6, host(3), now);
        assert!(lobby.is_full());
        for want in [3, 4] {
            assert_eq!(lobby.victim(), Some(want), "silent ones of the source with three");
            lobby.leave(want);
            lobby.enter(want + 10, host(2), now);
            lobby.greeted(want + 10);
        }
        assert_eq!(lobby.victim(), Some(2), "all have said hello, so the oldest");
        lobby.leave(2);
        lobby.leave(2);
        lobby.leave(13);
        // One of each is left; either may go, but one must.
        assert!(lobby.victim().is_some());
        [1, 5, 6, 14].into_iter().for_each(|id| lobby.leave(id));
        assert_eq!((lobby.victim(), lobby.len()), (None, 0));
        assert!(lobby.groups.is_empty() && lobby.crowds.is_empty());
    }

    #[test]
    fn limits_are_kept_in_order_of_arrival() {
        let (mut lobby, now) = (Lobby::new(9), Instant::now());
        let limit = Duration::from_secs(5);
        assert_eq!(lobby.next(limit), None);
        for id in 0..3 {
            lobby.enter(id, HERE, now + Duration::from_secs(id));
        }
        lobby.leave(0);
        assert_eq!(lobby.next(limit), Some(now + Duration::from_secs(6)));
        assert_eq!(lobby.overdue(now + Duration::from_secs(5), limit), None);
        assert_eq!(lobby.overdue(now + Duration::from_secs(6), limit), Some(1));
    }

    /// A million that come and go leave nothing behind.
    #[test]
    fn nothing_piles_up() {
        let (mut lobby, now) = (Lobby::new(100), Instant::now());
        lobby.enter(0, HERE, now);
        for id in 1..200_000 {
            lobby.enter(id, if id % 3 == 0 { host(1) } else { HERE }, now);
            if id % 2 == 0 {
                lobby.greeted(id);
            }
            lobby.leave(id);
        }
        let queued: usize = lobby.groups.values().map(|g| g.silent.len() + g.greeted.len()).sum();
        assert!(lobby.len() == 1 && queued < 100 && lobby.arrivals.len() < 100, "{queued}");
    }
}
