//! User memory becomes symmetric, and private again: collective, all PEs or none.
//!
//! Each PE first checks what it was given. Then the PEs compare sizes and kinds, share and map the memory,
//! and exchange whether that went well. Unregistering returns once every PE has unmapped the memory of all,
//! so that the caller may free it at once.

use std::os::fd::AsFd;
use std::sync::Arc;

use super::{Books, Symmetric, NOWHERE};
use crate::collective::Entered;
use crate::error::{err, Result};
use crate::gpu::ipc::{IpcHandle, IpcMapping};
use crate::gpu::Cuda;
use crate::memory::gpu_region::{inspect, GpuMemory, PlainRegion, VmmPiece};
use crate::memory::region::Region;
use crate::memory::remote::Backed;
use crate::memory::segments::UnmappedRegion;
use crate::node::control::{Call, RoundWords};
use crate::node::links::Links;
use crate::os::page_size;
use crate::topology::card::Card;

/// A registered region.
#[derive(Debug)]
pub(super) struct Registration {
    memory: RegionMemory,
    bytes: usize,
    /// Of its alias, from the window's upper half on.
    offset: usize,
}

#[derive(Debug)]
enum RegionMemory {
    /// The host's; private again when the region goes.
    Host { _shared: Region },
    /// VMM memory: its mappings in the window hold it.
    Vmm,
    /// Plain memory of a GPU, with the number that its allocation had.
    Plain(Option<u64>),
}

/// What this PE has been given to register.
enum Given {
    Host,
    Gpu(GpuMemory),
}

impl Given {
    /// A number for the others, and how many pieces there are.
    fn words(&self) -> [u64; 2] {
        match self {
            Given::Host => [1, 1],
            Given::Gpu(GpuMemory::Vmm(pieces)) => [2, pieces.len() as u64],
            Given::Gpu(GpuMemory::Plain(_)) => [3, 1],
        }
    }
}

fn kind_name(number: u64) -> &'static str {
    match number {
        1 => "host memory",
        2 => "VMM memory (cuMemCreate)",
        3 => "plain GPU memory (cuMemAlloc)",
        _ => "nothing that can be registered",
    }
}

impl Symmetric {
    /// Collective: private memory of the user becomes symmetric; its alias.
    ///
    /// # Safety
    /// Nobody else touches the range during the call.
    pub(crate) unsafe fn register(
        &self,
        addr: usize,
        bytes: usize,
        call: &mut Entered<'_>,
        links: &Links,
        cards: &[Card],
    ) -> Result<usize> {
        let given = self.look_at(addr, bytes, cards);
        let [kind, pieces] = given.as_ref().map_or([0, 0], Given::words);
        call.round(Call::Register, [bytes as u64, kind, pieces, 0])?;
        call.agree(0, "the size of a registered region")?;
        let answers: Vec<RoundWords> = (0..cards.len()).map(|pe| call.words(pe)).collect();
        let given = call.all_well(given, "register")?;
        same_kind(&answers, cards)?;
        let mut books = self.books();
        // Whole pieces of the window, whatever it is made of: what is mapped starts and ends at one.
        let align = self.piece().max(page_size());
        let offset = books.region_space.alloc(bytes, align).ok_or_else(|| {
            err!(
                HEAP_EXHAUSTED,
                "no room for {bytes} bytes of registered memory (RUSHMEM_HEAP_MAX raises the limit)"
            )
        })?;
        let at = self.window.half() + offset;
        let shared = match given {
            // SAFETY: checked by `look_at`; the caller keeps others away.
            Given::Host => unsafe { self.share_host(&mut books, at, addr, bytes, call, links) },
            Given::Gpu(GpuMemory::Vmm(own)) => {
                let rounds = answers.iter().map(|words| words[2]).max().unwrap_or(0);
                self.share_vmm(&mut books, at, &own, rounds, call, links).map(|()| RegionMemory::Vmm)
            }
            Given::Gpu(GpuMemory::Plain(own)) => {
                self.share_plain((addr, bytes), at, &own, call, cards).map(|()| RegionMemory::Plain(own.id))
            }
        };
        let memory = match shared {
            Ok(memory) => memory,
            Err(e) => {
                self.window.unmap(at, bytes.next_multiple_of(align));
                books.region_space.free(offset);
                return Err(e);
            }
        };
        let alias = self.base() + at;
        if let Some(far) = self.far.get() {
            let own = if matches!(memory, RegionMemory::Plain(_)) { addr } else { alias };
            // Registered until `unregister`, which takes it away from `far` first; or until the world ends.
            let kind = if self.window.backing().is_host() { Backed::Host } else { Backed::GpuPieces };
            // SAFETY: the region stays mapped until `unregister`, which takes it away from `far` first, or
            // until the world ends.
            let added = unsafe { far.add(at, bytes, own, kind) };
            // No PE returns before all know the region: otherwise it could put into a PE that does not yet.
            if let Err(e) = call.all_well(added, "register") {
                self.segments.remove(addr);
                self.window.unmap(at, bytes.next_multiple_of(align));
                books.region_space.free(offset);
                return Err(e);
            }
        }
        let shift = alias.wrapping_sub(addr) as isize;
        // What is not at its alias is reached by this PE itself at its own address.
        let (own, by_alias) =
            if matches!(memory, RegionMemory::Plain(_)) { (0, shift.wrapping_neg()) } else { (shift, 0) };
        books.regions.insert(addr, Registration { memory, bytes, offset });
        self.live.insert(addr, bytes, own);
        self.live.insert(alias, bytes, by_alias);
        Ok(alias)
    }

    /// Whether this PE's range can be registered, and as what. Nothing is changed.
    fn look_at(&self, addr: usize, bytes: usize, cards: &[Card]) -> Result<Given> {
        let given = match self.window.backing().gpu() {
            None => Region::check(addr, bytes).map(|()| Given::Host)?,
            Some(cuda) => {
                let process = cards[self.members[self.window.me()]].process;
                let alone = self.members.iter().all(|pe| cards[*pe].process == process);
                Given::Gpu(inspect(cuda, addr, bytes, self.piece(), alone)?)
            }
        };
        if self.window.covers(addr, bytes) || self.live.overlaps(addr, bytes) {
            return Err(err!(
                INVALID_ARGUMENT,
                "cannot register {bytes} bytes at {addr:#x}: they are symmetric already"
            ));
        }
        Ok(given)
    }

    /// # Safety
    /// The range passed [`Region::check`], and nobody else touches it.
    unsafe fn share_host(
        &self,
        books: &mut Books,
        at: usize,
        addr: usize,
        bytes: usize,
        call: &mut Entered<'_>,
        links: &Links,
    ) -> Result<RegionMemory> {
        // SAFETY: per contract.
        let region = call.all_well(unsafe { Region::share(addr, bytes) }, "register")?;
        self.map_everyones(books, at, bytes, region.chunk(), call, links)?;
        Ok(RegionMemory::Host { _shared: region })
    }

    /// Maps every PE's VMM allocations at `at` of its part of the window. They may be cut differently on each
    /// PE, so each of the `rounds` announces and maps one piece of every PE that has one left.
    fn share_vmm(
        &self,
        books: &mut Books,
        at: usize,
        own: &[VmmPiece],
        rounds: u64,
        call: &mut Entered<'_>,
        links: &Links,
    ) -> Result<()> {
        let mut mapped = Ok(());
        for round in 0..rounds as usize {
            // A PE with no piece left shows its last one, of which the others map 0 bytes.
            let piece = own.get(round).or(own.last()).expect("a region is one piece at least");
            let mine = if round < own.len() { [piece.offset as u64, piece.bytes as u64] } else { [0, 0] };
            call.round(Call::Step, [mine[0], mine[1], 0, 0])?;
            let places: Vec<RoundWords> = self.members.iter().map(|pe| call.words(*pe)).collect();
            books.exchanges += 1;
            let fds = links.exchange(books.exchanges, piece.chunk.fd().as_fd(), self.limit);
            let fds = fds.unwrap_or_else(|e| {
                mapped = Err(e);
                Vec::new()
            });
            for (slot, (fd, [offset, bytes, ..])) in fds.iter().zip(places).enumerate() {
                if mapped.is_ok() && bytes > 0 {
                    mapped =
                        self.window.map_piece(slot, at + offset as usize, bytes as usize, &piece.chunk, fd);
                }
            }
        }
        call.all_well(mapped, "mapping the PEs' registered memory")
    }

    /// Opens every PE's plain memory, wherever that may be.
    fn share_plain(
        &self,
        (addr, bytes): (usize, usize),
        alias: usize,
        own: &PlainRegion,
        call: &mut Entered<'_>,
        cards: &[Card],
    ) -> Result<()> {
        let Some(cuda) = self.window.backing().gpu() else {
            return Err(err!(INTERNAL, "plain GPU memory in a world on the host"));
        };
        let everyones = everyones(addr, cuda, own, call, &self.members)?;
        let me = self.window.me();
        let mut segment =
            UnmappedRegion { bytes, alias, copies: Vec::new(), open: Vec::new(), peers: Vec::new() };
        let mut opened = Ok(());
        for (slot, theirs) in everyones.iter().enumerate() {
            let copy = if slot == me {
                Ok(Some(addr))
            } else if self.window.why_unmapped(slot).is_some() || opened.is_err() {
                Ok(None)
            } else {
                let process = |slot: usize| cards[self.members[slot]].process;
                segment.reach(cuda, theirs, process(slot) == process(me)).map(Some)
            };
            match copy {
                Ok(copy) => segment.copies.push(copy),
                Err(e) => {
                    opened = Err(
                        e.context(format_args!("opening the memory of {}", cards[self.members[slot]].who()))
                    )
                }
            }
        }
        if let Err(e) = call.all_well(opened, "opening the PEs' registered memory") {
            // As when it is unregistered: closed everywhere before anybody may free its own.
            drop(segment);
            call.round(Call::Step, [0; 4])?;
            return Err(e);
        }
        self.segments.insert(addr, segment);
        Ok(())
    }

    /// Collective: the user's memory at `addr` (or its alias) is private again, with its last contents.
    /// `done`: how this PE's own operations ended.
    pub(crate) fn unregister(&self, addr: usize, done: Result<()>, call: &mut Entered<'_>) -> Result<()> {
        let mut books = self.books();
        let alias_of = |offset: usize| self.base() + self.window.half() + offset;
        let found = books.regions.iter().find(|(a, region)| **a == addr || alias_of(region.offset) == addr);
        let found = found.map(|(a, region)| (*a, region.offset));
        call.round(Call::Unregister, [found.map_or(NOWHERE, |f| f.1 as u64), 0, 0, 0])?;
        let Some((user, offset)) = found else {
            return Err(err!(BAD_ADDRESS, "cannot unregister {addr:#x}: no registered region starts there"));
        };
        call.agree(0, "the region of a collective unregister")?;
        let Registration { memory, bytes, .. } =
            books.regions.remove(&user).expect("it was found above, under the same lock");
        self.live.remove(user);
        self.live.remove(alias_of(offset));
        self.segments.remove(user);
        if let Some(far) = self.far.get() {
            far.remove(self.window.half() + offset, bytes);
        }
        let align = self.piece().max(page_size());
        self.window.unmap(self.window.half() + offset, bytes.next_multiple_of(align));
        books.region_space.free(offset);
        let still_there = self.still_there(user, &memory);
        drop(memory);
        // Only now may a PE free its memory: no other PE has it open any more.
        call.round(Call::Step, [0; 4])?;
        done.and(still_there)
    }

    /// Collective, at the end of a world: closes the other PEs' plain memory, before any of them may free it.
    pub(crate) fn let_go(&self, call: &mut Entered<'_>) -> Result<()> {
        // All PEs have registered the same.
        if self.segments.clear() {
            call.round(Call::Step, [0; 4])?;
        }
        Ok(())
    }

    /// An error where plain memory was freed while it was registered.
    fn still_there(&self, addr: usize, memory: &RegionMemory) -> Result<()> {
        let (RegionMemory::Plain(Some(id)), Some(cuda)) = (memory, self.window.backing().gpu()) else {
            return Ok(());
        };
        if cuda.allocation_id(addr)? == Some(*id) {
            return Ok(());
        }
        Err(err!(
            BAD_ADDRESS,
            "the memory at {addr:#x} was freed while it was registered: what other PEs have put there since may be lost, or have \
             overwritten other data; it is unregistered now"
        ))
    }
}

/// What a PE sends the others of its plain memory.
struct PlainOffer {
    handle: IpcHandle,
    offset: usize,
    address: usize,
    ordinal: usize,
}

/// Collective: the plain memory of the PEs `members` of this node, by slot. A handle is more than the words
/// of one round.
fn everyones(
    addr: usize,
    cuda: &Cuda,
    own: &PlainRegion,
    call: &mut Entered<'_>,
    members: &[usize],
) -> Result<Vec<PlainOffer>> {
    let handle = own.handle.0;
    let place = [own.offset as u64, addr as u64, cuda.facts().ordinal as u64, 0];
    let mut words: Vec<Vec<u64>> = vec![Vec::new(); members.len()];
    for mine in
        [[handle[0], handle[1], handle[2], handle[3]], [handle[4], handle[5], handle[6], handle[7]], place]
    {
        call.round(Call::Step, mine)?;
        words.iter_mut().zip(members).for_each(|(words, pe)| words.extend(call.words(*pe)));
    }
    let offer = |words: &Vec<u64>| PlainOffer {
        handle: IpcHandle(std::array::from_fn(|i| words[i])),
        offset: words[8] as usize,
        address: words[9] as usize,
        ordinal: words[10] as usize,
    };
    Ok(words.iter().map(offer).collect())
}

impl UnmappedRegion {
    /// The address at which this PE's GPU reaches another PE's memory.
    fn reach(&mut self, cuda: &Arc<Cuda>, theirs: &PlainOffer, same_process: bool) -> Result<usize> {
        if same_process {
            let peer = Cuda::open(theirs.ordinal)?;
            cuda.enable_peer_access(&peer)?;
            self.peers.push(peer);
            return Ok(theirs.address);
        }
        let mapping = IpcMapping::open(cuda, &theirs.handle)?;
        let at = mapping.start() + theirs.offset;
        self.open.push(mapping);
        Ok(at)
    }
}

/// An error on every PE where PEs gave memory of different kinds.
fn same_kind(answers: &[RoundWords], cards: &[Card]) -> Result<()> {
    if answers.iter().all(|words| words[1] == answers[0][1]) {
        return Ok(());
    }
    let each =
        answers.iter().zip(cards).map(|(words, card)| format!("{} on PE {}", kind_name(words[1]), card.pe));
    let each: Vec<String> = each.collect();
    Err(err!(
        MISMATCH,
        "the kind of a registered region's memory differs between the PEs: {}",
        each.join(", ")
    ))
}
