//! One PE's part of a test: buffers, a round, and its comparison with the model.

use std::ffi::c_void;
use std::time::Duration;

use rushmem::{Stream, SymSlice, Symmetric, Team};
use rushmem_moe::{AllToAll, Config, Count, Float, Layout, Payload, Received, Tokens};

use crate::model::{as_type, draw, expected_row, produced, pull, push, Drawn, Rng, Routing, Sizes};

/// What a test varies.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case {
    pub(crate) max_tokens: u32,
    pub(crate) hidden: u32,
    pub(crate) experts: u32,
    pub(crate) top_k: u32,
    pub(crate) payload: Payload,
    pub(crate) produced: Float,
    pub(crate) output: Float,
    pub(crate) layout: Layout,
    pub(crate) weighted: bool,
    pub(crate) rounded: bool,
    pub(crate) few: u32,
    pub(crate) routing: Routing,
    pub(crate) shared_routing: Option<u32>,
    pub(crate) threads: Option<u32>,
    pub(crate) blocks: Option<u32>,
}

impl Case {
    pub(crate) fn new(max_tokens: u32, hidden: u32, experts: u32, top_k: u32) -> Case {
        Case {
            max_tokens,
            hidden,
            experts,
            top_k,
            payload: Payload::Floats(Float::Bf16),
            produced: Float::Bf16,
            output: Float::Bf16,
            layout: Layout::ExpertMajor,
            weighted: true,
            rounded: false,
            few: max_tokens / 2,
            routing: Routing::Any(7),
            shared_routing: None,
            threads: None,
            blocks: None,
        }
    }
    pub(crate) fn config(&self) -> Config {
        let config = Config::new(self.max_tokens, self.hidden, self.experts, self.top_k)
            .payload(self.payload)
            .combine(self.produced, self.output)
            .layout(self.layout)
            .few(self.few);
        let config = if self.rounded { config.rounded_sums() } else { config };
        let config = self.shared_routing.map_or(config, |bytes| config.shared_routing(bytes));
        let config = self.threads.map_or(config, |threads| config.threads(threads));
        let config = self.blocks.map_or(config, |blocks| config.blocks(blocks));
        if self.weighted {
            config
        } else {
            config.unweighted()
        }
    }
    pub(crate) fn sizes(&self) -> Sizes {
        Sizes { hidden: self.hidden as usize, experts: self.experts as usize, top_k: self.top_k as usize }
    }
}

/// How a round's calls are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Halves {
    Whole,
    Split,
}

/// One PE, ready for rounds of one case.
pub(crate) struct Bench<'t, 'w> {
    pub(crate) case: Case,
    pub(crate) exchange: AllToAll<'t, 'w>,
    pub(crate) ranks: usize,
    pub(crate) me: usize,
    local: usize,
    /// Rows of the result.
    rows: usize,
    x: SymSlice<'w, u8>,
    side: SymSlice<'w, u8>,
    experts: SymSlice<'w, i32>,
    weights: SymSlice<'w, f32>,
    count: SymSlice<'w, u32>,
    out_x: SymSlice<'w, u8>,
    out_side: SymSlice<'w, u8>,
    counts: SymSlice<'w, i32>,
    sources: SymSlice<'w, i32>,
    out_experts: SymSlice<'w, i32>,
    out_weights: SymSlice<'w, f32>,
    y: SymSlice<'w, u8>,
    pub(crate) out: SymSlice<'w, u8>,
}

fn fill<T: Symmetric>(to: &SymSlice<'_, T>, from: &[T]) {
    let from = &from[..from.len().min(to.len())];
    to.slice(..from.len()).unwrap().write(from).unwrap();
}

impl<'t, 'w> Bench<'t, 'w> {
    pub(crate) fn new(team: &'t Team<'w>, case: Case) -> Bench<'t, 'w> {
        Bench::of(team, case, case.config())
    }

    pub(crate) fn of(team: &'t Team<'w>, case: Case, config: Config) -> Bench<'t, 'w> {
        let world = team.world();
        let exchange = AllToAll::new(team, config).unwrap();
        let ranks = team.n_pes() as usize;
        let local = config.experts_a_rank(team.n_pes()) as usize;
        let rows = config.rows(team.n_pes()) as usize
            * match case.layout {
                Layout::ExpertMajor => local,
                Layout::RankMajor => ranks,
                Layout::Flat { .. } => 1,
            };
        let (t, k) = (case.max_tokens as usize, case.top_k as usize);
        let in_bytes = match case.payload {
            Payload::Cast(..) => case.hidden as usize * 2,
            _ => config.row_bytes() as usize,
        };
        Bench {
            case,
            exchange,
            ranks,
            me: team.my_pe() as usize,
            local,
            rows,
            x: world.alloc(t * in_bytes).unwrap(),
            side: world.alloc((t * config.side_bytes() as usize).max(16)).unwrap(),
            experts: world.alloc(t * k).unwrap(),
            weights: world.alloc(t * k).unwrap(),
            count: world.alloc(1).unwrap(),
            out_x: world.alloc(rows * config.row_bytes() as usize).unwrap(),
            out_side: world.alloc((rows * config.side_bytes() as usize).max(16)).unwrap(),
            counts: world.alloc(local.max(ranks)).unwrap(),
            sources: world.alloc(rows).unwrap(),
            out_experts: world.alloc(ranks * t * k).unwrap(),
            out_weights: world.alloc(ranks * t * k).unwrap(),
            y: world.alloc(rows * case.hidden as usize * case.produced.bytes() as usize).unwrap(),
            out: world.alloc(t * case.hidden as usize * case.output.bytes() as usize).unwrap(),
        }
    }

    pub(crate) fn free(self) {
        self.exchange.free().unwrap();
        for bytes in [self.x, self.side, self.out_x, self.out_side, self.y, self.out] {
            bytes.free().unwrap();
        }
        for numbers in [self.experts, self.counts, self.sources, self.out_experts] {
            numbers.free().unwrap();
        }
        self.weights.free().unwrap();
        self.out_weights.free().unwrap();
        self.count.free().unwrap();
    }

    /// The tokens of all ranks in a round, the same on all of them.
    pub(crate) fn draw(&self, seed: u64, count: impl Fn(&mut Rng, usize) -> usize) -> Vec<Drawn> {
        let mut rng = Rng(seed);
        let case = &self.case;
        let each = |rank: usize| {
            let n = count(&mut rng, rank);
            draw(&mut rng, n, &case.sizes(), case.payload, case.routing)
        };
        (0..self.ranks).map(each).collect()
    }

    pub(crate) fn tokens(&self, drawn: &Drawn, on_device: bool) -> Tokens {
        fill(&self.x, &drawn.x);
        fill(&self.side, &drawn.side);
        fill(&self.experts, &drawn.experts);
        fill(&self.weights, &drawn.weights);
        self.count.write(&[drawn.n as u32]).unwrap();
        Tokens {
            x: self.x.as_ptr().cast(),
            side: self.side.as_ptr().cast(),
            experts: self.experts.as_ptr().cast(),
            weights: self.weights.as_ptr(),
            count: if on_device { Count::Device(self.count.as_ptr()) } else { Count::Host(drawn.n as u32) },
        }
    }

    pub(crate) fn received(&self) -> Received {
        Received {
            x: self.out_x.as_ptr().cast(),
            side: self.out_side.as_ptr().cast(),
            counts: self.counts.as_ptr(),
            sources: self.sources.as_ptr(),
            experts: self.out_experts.as_ptr(),
            weights: self.out_weights.as_ptr(),
        }
    }

    pub(crate) fn y(&self) -> *const c_void {
        self.y.as_ptr().cast_const().cast()
    }

    pub(crate) fn out(&self) -> *mut c_void {
        self.out.as_ptr().cast()
    }

    /// Marks what a round would write: tokens, counts, sums.
    pub(crate) fn poison(&self) -> (&SymSlice<'w, u8>, &SymSlice<'w, i32>, &SymSlice<'w, u8>) {
        self.out_x.fill(0xee).unwrap();
        self.out.fill(0xee).unwrap();
        self.counts.fill(0).unwrap();
        self.counts.slice(..self.local).unwrap().fill(-7).unwrap();
        (&self.out_x, &self.counts, &self.out)
    }

    /// A whole round, compared. `late`: this rank sleeps so long before each half.
    pub(crate) fn round(
        &self,
        stream: &Stream<'_>,
        seed: u64,
        all: &[Drawn],
        halves: Halves,
        mut late: impl FnMut() -> Duration,
    ) {
        let mine = &all[self.me];
        self.out_x.fill(0xee).unwrap();
        self.out_side.fill(0xee).unwrap();
        self.counts.fill(-7).unwrap();
        self.sources.fill(-7).unwrap();
        self.out.fill(0xee).unwrap();
        let (tokens, to) = (self.tokens(mine, seed % 2 == 0), self.received());
        std::thread::sleep(late());
        // SAFETY: buffers of the configuration's sizes, which nobody else uses until the stream is idle.
        unsafe {
            match halves {
                Halves::Whole => self.exchange.dispatch(&tokens, &to, stream).unwrap(),
                Halves::Split => {
                    self.exchange.dispatch_send(&tokens, stream).unwrap();
                    // What has been sent may change.
                    stream.synchronize().unwrap();
                    self.x.fill(0x55).unwrap();
                    self.side.fill(0x55).unwrap();
                    std::thread::sleep(late());
                    self.exchange.dispatch_receive(&to, stream).unwrap();
                }
            }
        }
        stream.synchronize().unwrap();
        self.exchange.check().unwrap();
        // What dispatch needed may change now.
        self.experts.fill(i32::MAX).unwrap();
        self.weights.fill(f32::NAN).unwrap();
        let (places, rows) = self.compare_received(all);
        self.produce(seed, &places, rows);
        std::thread::sleep(late());
        // SAFETY: nobody uses these buffers until the stream is idle.
        unsafe {
            match halves {
                Halves::Whole => self.exchange.combine(self.y(), self.out(), stream).unwrap(),
                Halves::Split => {
                    self.exchange.combine_send(self.y(), stream).unwrap();
                    std::thread::sleep(late());
                    self.exchange.combine_receive(self.out(), stream).unwrap();
                }
            }
        }
        stream.synchronize().unwrap();
        self.exchange.check().unwrap();
        self.compare_sums(seed, mine);
    }

    /// Where each (expert, source, token) of this rank should lie, in the order of rows.
    fn places(&self, all: &[Drawn]) -> Vec<(usize, usize, usize, usize)> {
        let (k, first) = (self.case.top_k as usize, self.me * self.local);
        let mut places = Vec::new();
        if self.case.layout == Layout::RankMajor {
            for (source, drawn) in all.iter().enumerate() {
                for token in 0..drawn.n {
                    let ours = |e: &i32| *e >= 0 && (first..first + self.local).contains(&(*e as usize));
                    if drawn.experts[token * k..][..k].iter().any(ours) {
                        places.push((source * self.case.max_tokens as usize + token, 0, source, token));
                    }
                }
            }
            return places;
        }
        let mut begin = 0;
        for expert in first..first + self.local {
            let mut row = begin;
            for (source, drawn) in all.iter().enumerate() {
                for token in 0..drawn.n {
                    for _ in drawn.experts[token * k..][..k].iter().filter(|e| **e == expert as i32) {
                        places.push((row, expert, source, token));
                        row += 1;
                    }
                }
            }
            begin = match self.case.layout {
                Layout::Flat { align } => row.next_multiple_of(align as usize),
                _ => begin + self.rows / self.local,
            };
        }
        places
    }

    fn compare_received(&self, all: &[Drawn]) -> (Vec<(usize, usize, usize, usize)>, usize) {
        let case = &self.case;
        let (hidden, t, k) = (case.hidden as usize, case.max_tokens as usize, case.top_k as usize);
        let config = *self.exchange.config();
        let (row, side) = (config.row_bytes() as usize, config.side_bytes() as usize);
        let places = self.places(all);
        let (x, beside) = (self.out_x.to_vec().unwrap(), self.out_side.to_vec().unwrap());
        let (counts, sources) = (self.counts.to_vec().unwrap(), self.sources.to_vec().unwrap());
        let mut written = vec![false; self.rows];
        let mut wanted = vec![0; self.local];
        for &(at, expert, source, token) in &places {
            let (want_row, want_side) = expected_row(&all[source], token, hidden, case.payload);
            let about = || {
                format!("rank {}: row {at}, token {token} of {source} for expert {expert}, {case:?}", self.me)
            };
            assert_eq!(sources[at], (source * t + token) as i32, "{}", about());
            assert!(x[at * row..][..row] == want_row, "{}", about());
            assert!(beside[at * side..][..want_side.len()] == want_side, "beside: {}", about());
            written[at] = true;
            if case.layout != Layout::RankMajor {
                wanted[expert - self.me * self.local] += 1;
            }
        }
        for (at, _) in written.iter().enumerate().filter(|(_, written)| !**written) {
            assert_eq!(sources[at], -7, "rank {}: row {at} is nobody's", self.me);
            assert!(x[at * row..][..row].iter().all(|byte| *byte == 0xee), "row {at} is nobody's");
        }
        if case.layout == Layout::RankMajor {
            let tokens: Vec<i32> = all.iter().map(|drawn| drawn.n as i32).collect();
            assert_eq!(counts[..self.ranks], tokens);
            let (experts, weights) = (self.out_experts.to_vec().unwrap(), self.out_weights.to_vec().unwrap());
            for (i, expert) in experts.iter().enumerate() {
                let (source, token) = (i / k / t, i / k % t);
                let drawn = &all[source];
                let id = if token < drawn.n { drawn.experts[token * k + i % k] } else { -1 };
                let local = id - (self.me * self.local) as i32;
                let ours = id >= 0 && (0..self.local as i32).contains(&local);
                assert_eq!(*expert, if ours { local } else { -1 }, "token {token} of {source}");
                if ours && case.weighted {
                    assert_eq!(weights[i].to_bits(), drawn.weights[token * k + i % k].to_bits());
                }
            }
        } else {
            assert_eq!(counts[..self.local], wanted, "rank {}", self.me);
        }
        (places, self.rows)
    }

    /// What experts make of it, in the places where it lies; elsewhere no numbers.
    fn produce(&self, seed: u64, places: &[(usize, usize, usize, usize)], rows: usize) {
        let (case, hidden) = (&self.case, self.case.hidden as usize);
        let each = hidden * case.produced.bytes() as usize;
        let mut y = vec![0xff; rows * each];
        for &(at, expert, source, token) in places {
            let mut row = Vec::with_capacity(each);
            let expert = if case.layout == Layout::RankMajor { self.me } else { expert };
            (0..hidden).for_each(|c| push(&mut row, case.produced, produced(seed, expert, source, token, c)));
            y[at * each..][..each].copy_from_slice(&row);
        }
        fill(&self.y, &y);
    }

    /// What should come out for token `token` of rank `rank`, of which `drawn` are all.
    pub(crate) fn sum(&self, seed: u64, rank: usize, drawn: &Drawn, token: usize) -> Vec<u8> {
        let (case, k) = (&self.case, self.case.top_k as usize);
        let chosen = &drawn.experts[token * k..][..k];
        let mut want = Vec::new();
        for column in 0..case.hidden as usize {
            let of = |expert| as_type(case.produced, produced(seed, expert, rank, token, column));
            let mut total: Option<f32> = None;
            for maker in 0..self.ranks {
                let mut sum: Option<f32> = None;
                for (i, expert) in chosen.iter().enumerate().filter(|(_, e)| **e >= 0) {
                    if *expert as usize / self.local != maker {
                        continue;
                    }
                    if case.layout == Layout::RankMajor {
                        sum = Some(of(maker));
                        continue;
                    }
                    let y = of(*expert as usize);
                    let term = if case.weighted { drawn.weights[token * k + i] * y } else { y };
                    sum = Some(sum.map_or(term, |sum| sum + term));
                }
                if case.rounded {
                    sum = sum.map(|sum| as_type(case.produced, sum));
                }
                total = sum.map_or(total, |sum| Some(total.map_or(sum, |total| total + sum)));
            }
            push(&mut want, case.output, total.unwrap_or(0.0));
        }
        want
    }

    fn compare_sums(&self, seed: u64, mine: &Drawn) {
        let (case, hidden, k) = (&self.case, self.case.hidden as usize, self.case.top_k as usize);
        let each = hidden * case.output.bytes() as usize;
        let out = self.out.to_vec().unwrap();
        for token in 0..mine.n {
            let (chosen, want) = (&mine.experts[token * k..][..k], self.sum(seed, self.me, mine, token));
            let seen = &out[token * each..][..each];
            if seen != want {
                let at = (0..hidden).find(|i| {
                    pull(seen, case.output, *i).to_bits() != pull(&want, case.output, *i).to_bits()
                });
                let at = at.unwrap_or(0);
                let (seen, want) = (pull(seen, case.output, at), pull(&want, case.output, at));
                panic!(
                    "rank {}: token {token}, column {at}: {seen} for {want}; experts {chosen:?}, {case:?}",
                    self.me
                );
            }
        }
        let rest = &out[mine.n * each..];
        assert!(rest.iter().all(|byte| *byte == 0xee), "rank {}: behind its tokens", self.me);
    }
}
