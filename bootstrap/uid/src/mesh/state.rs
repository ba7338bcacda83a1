//! What a rank knows of its links and of the job's health, under one lock that the caller of a collective and
//! the I/O thread share. Nothing in here waits.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::io::ErrorKind;
use std::sync::Arc;

use rushmem_bootstrap_abi::{BootError, BootErrorKind};
use socket2::Socket;

use super::frame::{self, roll_bytes, Call, FrameKind, Mismatch, CREDIT_STEP, HEADER, WINDOW};
use crate::connect::Host;
use crate::endpoint;
use crate::wire::{Malformed, Parsed};

/// Own calls that are remembered, to find who differs when a mismatch is reported.
const REMEMBERED: usize = 16;
/// Roll calls held at a time.
const MAX_ROLLS: usize = 4;

/// A piece of a collective's data that waits to be taken.
pub(crate) struct Piece {
    pub(crate) call: Call,
    pub(crate) step: u32,
    pub(crate) payload: Vec<u8>,
}

/// The connection with one neighbour.
pub(crate) struct Link {
    pub(crate) rank: u32,
    pub(crate) name: String,
    /// Its host, where that is another one.
    pub(crate) remote_host: Option<Host>,
    stream: Arc<Socket>,
    /// Frames that the socket has not taken yet.
    output: Vec<u8>,
    pub(crate) inbox: VecDeque<Piece>,
    credit: usize,
    /// Bytes in the inbox, and bytes taken out of it since the neighbour was last given credit.
    held: usize,
    taken: usize,
    /// It said goodbye: its end is no death.
    pub(crate) bye: bool,
    /// Its end has been read.
    pub(crate) ended: bool,
    /// The socket takes no more; why it ended is for the reading side to find out.
    mute: bool,
}

impl Link {
    fn push(&mut self, kind: &FrameKind, payload: &[u8]) {
        if !self.mute {
            self.output.extend(frame::header(kind, payload.len()));
            self.output.extend(payload);
        }
    }

    pub(crate) fn flush(&mut self) {
        let mut sent = 0;
        while sent < self.output.len() && !self.mute {
            match endpoint::send(&self.stream, &self.output[sent..]) {
                Ok(0) => self.mute = true,
                Ok(n) => sent += n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => self.mute = true,
            }
        }
        if self.mute {
            self.output.clear();
        } else {
            self.output.drain(..sent);
        }
    }

    pub(crate) fn has_output(&self) -> bool {
        !self.output.is_empty()
    }

    /// Room for one more data frame of `len` bytes without overrunning the neighbour.
    pub(crate) fn has_credit(&self, len: usize) -> bool {
        self.credit >= HEADER + len
    }

    /// Queues a data frame whose payload `fill` writes.
    pub(crate) fn push_data(&mut self, call: Call, step: u32, len: usize, fill: impl FnOnce(&mut Vec<u8>)) {
        self.credit -= HEADER + len;
        if !self.mute {
            self.output.extend(frame::header(&FrameKind::Data(call, step), len));
            fill(&mut self.output);
        }
    }

    /// A piece of `len` bytes has left the inbox.
    pub(crate) fn took(&mut self, len: usize) {
        self.held -= HEADER + len;
        self.taken += HEADER + len;
        if self.taken >= CREDIT_STEP {
            let taken = std::mem::take(&mut self.taken) as u64;
            self.push(&FrameKind::Credit(taken), &[]);
            self.flush();
        }
    }
}

/// How a link came to its end, and what was seen.
pub(crate) enum Ending {
    /// By the process at its other end.
    Died(String),
    /// With the host at its other end, which no longer answers.
    Silent(String),
}

/// A reason why calls cannot go on.
enum Trouble {
    /// From this call on (0: at once).
    Broken(u64, BootError),
    Mismatch(Mismatch),
}

/// Who has entered a call, as far as is known: two sets of ranks, one bit each.
pub(crate) struct Roll {
    /// The ranks that have answered, then (in the second half) those that are in the call.
    bits: Vec<u8>,
    /// Sent to the neighbours at the next tick.
    pub(crate) changed: bool,
}

/// See the top of the file.
pub(crate) struct State {
    n_ranks: u32,
    me: u32,
    pub(crate) links: Vec<Link>,
    /// The first death reported.
    pub(crate) death: Option<BootError>,
    /// What became of neighbours on that rank's host, if it is another host than this: it may be gone as a
    /// whole.
    pub(crate) with_it: Vec<String>,
    /// What broke the job, in the order in which it was reported: the cause of a rank's leaving comes before
    /// it.
    troubles: Vec<Trouble>,
    /// What has been passed on already: kind, rank, call.
    forwarded: HashSet<(i32, Option<u32>, u64)>,
    calls: VecDeque<Call>,
    pub(crate) seq: u64,
    /// The last call that ended well.
    pub(crate) ended: u64,
    pub(crate) rolls: BTreeMap<u64, Roll>,
    /// Set when this rank leaves; the I/O thread then ends.
    pub(crate) leaving: bool,
}

impl State {
    pub(crate) fn new(me: u32, n_ranks: u32, links: Vec<(u32, String, Option<Host>, Arc<Socket>)>) -> State {
        let link = |(rank, name, remote_host, stream)| Link {
            rank,
            name,
            remote_host,
            stream,
            output: Vec::new(),
            inbox: VecDeque::new(),
            credit: WINDOW,
            held: 0,
            taken: 0,
            bye: false,
            ended: false,
            mute: false,
        };
        State {
            n_ranks,
            me,
            links: links.into_iter().map(link).collect(),
            death: None,
            with_it: Vec::new(),
            troubles: Vec::new(),
            forwarded: HashSet::new(),
            calls: VecDeque::new(),
            seq: 0,
            ended: 0,
            rolls: BTreeMap::new(),
            leaving: false,
        }
    }

    /// Begins a call.
    pub(crate) fn begin(&mut self, op: frame::Op, root: u32, blob: u64) -> Call {
        self.seq += 1;
        let call = Call { seq: self.seq, op, root, blob };
        if self.calls.len() == REMEMBERED {
            self.calls.pop_front();
        }
        self.calls.push_back(call);
        let seqs: Vec<u64> = self.rolls.range(..=self.seq).map(|r| *r.0).collect();
        seqs.into_iter().for_each(|s| self.answer_roll(s));
        call
    }

    /// Why a call that cannot go on must end.
    pub(crate) fn trouble(&self, seq: u64) -> Option<BootError> {
        self.troubles.iter().find_map(|trouble| match trouble {
            Trouble::Broken(from, e) => (*from <= seq).then(|| e.clone()),
            Trouble::Mismatch(q) => {
                (q.seq() <= seq).then(|| q.error(self.calls.iter().find(|c| c.seq == q.seq()).copied()))
            }
        })
    }

    fn send_all(&mut self, kind: &FrameKind, payload: &[u8]) {
        for link in self.links.iter_mut().filter(|l| !l.ended) {
            link.push(kind, payload);
            link.flush();
        }
    }

    /// Notes that the job is broken from call `seq` on and forwards that once. After a kill `seq` is 0,
    /// because nobody knows how far that rank was; a rank that leaves by itself names the first call that it
    /// did not end, since the others can end those before. The message is sent before this rank's caller can
    /// see the reason, so that a caller that then ends is not taken for the first death.
    pub(crate) fn break_job(&mut self, seq: u64, e: BootError) {
        let of_me = e.rank == Some(self.me) && e.kind == BootErrorKind::PeerDead && !self.leaving;
        let key_seq = match e.kind {
            // This rank may yet say itself why it leaves.
            BootErrorKind::PeerDead if of_me => u64::MAX,
            BootErrorKind::PeerDead => 0,
            _ => seq,
        };
        if !self.forwarded.insert((e.kind as i32, e.rank, key_seq)) {
            return;
        }
        self.send_all(&FrameKind::Broken(seq), &frame::write_broken(&e));
        if of_me {
            // It goes on, but the others learn of it from here, too: what followed from it may come behind it
            // on the same links.
            log::debug!("rushmem uid: rank {} is reported dead", self.me);
            return;
        }
        log::debug!("rushmem uid: rank {} learns: {}", self.me, e.message);
        if e.kind == BootErrorKind::PeerDead {
            match &self.death {
                None => self.death = Some(e.clone()),
                // A rank that leaves by itself (a number other than 0) does so because of the first.
                Some(first) if seq == 0 && first.message != e.message => {
                    let home = |rank| self.home_of(rank);
                    if home(e.rank).is_some() && home(e.rank) == home(first.rank) {
                        self.with_it.push(e.message.clone());
                    }
                }
                Some(_) => {}
            }
        }
        self.troubles.push(Trouble::Broken(seq, e));
    }

    /// The host of a neighbour on another host.
    fn home_of(&self, rank: Option<u32>) -> Option<u64> {
        let at = self.links.binary_search_by_key(&rank?, |l| l.rank).ok()?;
        Some(self.links[at].remote_host.as_ref()?.home)
    }

    /// Notes two ranks in different calls, and forwards that once.
    pub(crate) fn mismatch(&mut self, q: Mismatch) {
        if self.forwarded.insert((BootErrorKind::Mismatch as i32, None, q.seq())) {
            self.send_all(&FrameKind::Mismatch, &q.encode());
            self.troubles.push(Trouble::Mismatch(q));
        }
    }

    /// The roll of call `seq` is being called: answers, and says whether this rank is in it.
    pub(crate) fn answer_roll(&mut self, seq: u64) {
        if !self.rolls.contains_key(&seq) {
            if self.rolls.len() == MAX_ROLLS {
                self.rolls.pop_first();
            }
            let bits = vec![0; roll_bytes(self.n_ranks)];
            self.rolls.insert(seq, Roll { bits, changed: true });
        }
        let entered = self.seq >= seq;
        if let Some(roll) = self.rolls.get_mut(&seq) {
            let half = roll.bits.len() / 2;
            let (at, bit) = (self.me as usize / 8, 1 << (self.me % 8));
            for at in [at, at + half].into_iter().take(1 + usize::from(entered)) {
                roll.changed |= roll.bits[at] & bit == 0;
                roll.bits[at] |= bit;
            }
        }
    }

    /// The ranks that have not answered the roll of call `seq`, and those that are not known to be in it.
    pub(crate) fn absent(&self, seq: u64) -> (Vec<u32>, Vec<u32>) {
        let Some(roll) = self.rolls.get(&seq) else { return Default::default() };
        let (answered, entered) = roll.bits.split_at(roll.bits.len() / 2);
        let missing =
            |of: &[u8]| (0..self.n_ranks).filter(|r| of[*r as usize / 8] >> (r % 8) & 1 == 0).collect();
        (missing(answered), missing(entered))
    }

    /// Tells the neighbours what has become known of roll calls.
    pub(crate) fn spread_rolls(&mut self) {
        let fresh = self.rolls.iter_mut().filter(|r| r.1.changed);
        let changed: Vec<(u64, Vec<u8>)> = fresh
            .map(|(seq, roll)| {
                roll.changed = false;
                (*seq, roll.bits.clone())
            })
            .collect();
        for (seq, bits) in changed {
            self.send_all(&FrameKind::Roll(seq), &bits);
        }
    }

    /// A frame from link `at`.
    pub(crate) fn take_frame(&mut self, at: usize, kind: FrameKind, payload: &[u8]) -> Parsed<()> {
        match kind {
            FrameKind::Data(call, step) => {
                let link = &mut self.links[at];
                link.held += HEADER + payload.len();
                if link.held > WINDOW {
                    return Err(Malformed(format!("more than the {WINDOW} bytes that it may send unasked")));
                }
                link.inbox.push_back(Piece { call, step, payload: payload.to_vec() });
            }
            FrameKind::Credit(bytes) => {
                let link = &mut self.links[at];
                link.credit = link.credit.saturating_add(bytes as usize).min(WINDOW);
            }
            FrameKind::Broken(seq) => self.break_job(seq, frame::read_broken(payload)?),
            FrameKind::Mismatch => self.mismatch(Mismatch::decode(payload)?),
            FrameKind::Roll(seq) => {
                self.answer_roll(seq);
                if let Some(roll) = self.rolls.get_mut(&seq) {
                    for (mine, theirs) in roll.bits.iter_mut().zip(payload) {
                        roll.changed |= *theirs & !*mine != 0;
                        *mine |= theirs;
                    }
                }
            }
            FrameKind::Bye => self.links[at].bye = true,
        }
        Ok(())
    }

    /// Link `at` has ended, because of `why`.
    pub(crate) fn link_ended(&mut self, at: usize, why: &Ending) {
        let link = &mut self.links[at];
        link.ended = true;
        link.mute = true;
        link.output.clear();
        if !link.bye && !self.leaving {
            let text = match (why, &link.remote_host) {
                (Ending::Silent(why), Some(host)) => format!("host {} with {}: {why}", host.name, host.ranks),
                (Ending::Silent(why) | Ending::Died(why), _) => format!("{} died: {why}", link.name),
            };
            let rank = link.rank;
            self.break_job(0, BootError::new(BootErrorKind::PeerDead, text).with_rank(rank));
        }
    }

    /// Queues a goodbye to all neighbours.
    pub(crate) fn leave(&mut self) {
        self.leaving = true;
        self.send_all(&FrameKind::Bye, &[]);
    }
}
