//! Buffers of one rank, a round on them, and its check: what came out against what should have, computed
//! otherwise.

use rushmem::{Stream, SymSlice, World};
use rushmem_moe::{AllToAll, Count, Layout, Received, Tokens};

use super::data::{bf16_of, choice, token, Sequence};
use super::point::Point;
use crate::args::{MoeLayout, MoePayload};
use crate::job::{Failure, Result};

/// Rows of a result that are looked at, at most; of more, random ones.
const LOOKED_AT: usize = 1024;

/// Buffers of one rank.
pub(super) struct Bench<'t, 'w> {
    point: Point,
    seed: u64,
    world: &'w World,
    pub(super) exchange: AllToAll<'t, 'w>,
    ranks: u32,
    me: u32,
    local: u32,
    rows: usize,
    sequence: Sequence,
    x: SymSlice<'w, u16>,
    experts: SymSlice<'w, i32>,
    weights: SymSlice<'w, f32>,
    pub(super) out_x: SymSlice<'w, u8>,
    out_side: SymSlice<'w, u8>,
    counts: SymSlice<'w, i32>,
    sources: SymSlice<'w, i32>,
    y: SymSlice<'w, u16>,
    pub(super) out: SymSlice<'w, u16>,
}

/// A row of the result: where it lies, whose product it has, and which token's it is.
pub(super) struct ResultRow {
    at: usize,
    maker: u32,
    source: u32,
    token: u32,
}

pub(super) fn said(error: rushmem_moe::Error) -> Failure {
    Failure::new(error.to_string())
}

impl<'t, 'w> Bench<'t, 'w> {
    pub(super) fn new(team: &'t rushmem::Team<'w>, point: &Point, salt: u64) -> Result<Bench<'t, 'w>> {
        let world = team.world();
        let mut seed = [salt];
        team.broadcast_in_place(&mut seed, 0)?;
        let config = point.config();
        let exchange = AllToAll::new(team, config).map_err(said)?;
        let (ranks, me, local) = (team.n_pes(), team.my_pe(), config.experts_a_rank(team.n_pes()));
        let rows = config.rows(ranks) as usize
            * match config.layout_of_rows() {
                Layout::ExpertMajor => local as usize,
                Layout::RankMajor => ranks as usize,
                _ => 1,
            };
        let (t, k, hidden) = (point.tokens as usize, point.top_k as usize, point.hidden as usize);
        let bench = Bench {
            sequence: Sequence::new(seed[0], point.hidden),
            seed: seed[0],
            point: point.clone(),
            world,
            exchange,
            ranks,
            me,
            local,
            rows,
            x: world.alloc(t * hidden)?,
            experts: world.alloc(t * k)?,
            weights: world.alloc(t * k)?,
            out_x: world.alloc(rows * config.row_bytes() as usize)?,
            out_side: world.alloc((rows * config.side_bytes() as usize).max(16))?,
            counts: world.alloc(local.max(ranks) as usize)?,
            sources: world.alloc(rows)?,
            y: world.alloc(rows * hidden)?,
            out: world.alloc(t * hidden)?,
        };
        let (mut x, mut experts, mut weights) = (Vec::new(), Vec::new(), Vec::new());
        for t in 0..point.tokens {
            x.extend(token(bench.seed, me, t, point.hidden).bf16);
            for (expert, weight) in choice(bench.seed, me, t, point.experts, point.top_k) {
                experts.push(expert as i32);
                weights.push(weight);
            }
        }
        bench.x.write(&x)?;
        bench.experts.write(&experts)?;
        bench.weights.write(&weights)?;
        world.barrier_all()?;
        Ok(bench)
    }

    pub(super) fn free(self) -> Result<()> {
        self.world.synchronize()?;
        self.exchange.free().map_err(said)?;
        for words in [self.x, self.y, self.out] {
            words.free()?;
        }
        for bytes in [self.out_x, self.out_side] {
            bytes.free()?;
        }
        for numbers in [self.experts, self.counts, self.sources] {
            numbers.free()?;
        }
        Ok(self.weights.free()?)
    }

    /// Puts a round, or its dispatch alone, on the stream.
    pub(super) fn round(&self, pair: bool, stream: &Stream<'_>) -> Result<()> {
        let tokens = Tokens {
            x: self.x.as_ptr().cast_const().cast(),
            side: std::ptr::null(),
            experts: self.experts.as_ptr().cast_const().cast(),
            weights: self.weights.as_ptr(),
            count: Count::Host(self.point.tokens),
        };
        let to = Received {
            x: self.out_x.as_ptr().cast(),
            side: self.out_side.as_ptr().cast(),
            counts: self.counts.as_ptr(),
            sources: self.sources.as_ptr(),
            experts: std::ptr::null_mut(),
            weights: std::ptr::null_mut(),
        };
        // SAFETY: buffers of the configuration's sizes, which live until the stream has been waited for.
        unsafe {
            self.exchange.dispatch(&tokens, &to, stream).map_err(said)?;
            if pair {
                let (y, out) = (self.y.as_ptr().cast_const().cast(), self.out.as_ptr().cast());
                self.exchange.combine(y, out, stream).map_err(said)?;
            }
        }
        Ok(())
    }

    /// Where everything should lie, in the order of rows.
    fn places(&self) -> Vec<ResultRow> {
        let (point, first) = (&self.point, self.me * self.local);
        let mut of: Vec<Vec<ResultRow>> = Vec::new();
        of.resize_with(if point.layout == MoeLayout::RankMajor { 1 } else { self.local as usize }, Vec::new);
        for source in 0..self.ranks {
            for token in 0..point.tokens {
                let chosen = choice(self.seed, source, token, point.experts, point.top_k);
                let ours = chosen.iter().map(|(e, _)| *e).filter(|e| (first..first + self.local).contains(e));
                for (i, expert) in ours.enumerate() {
                    let at = (source * point.tokens + token) as usize;
                    match point.layout {
                        MoeLayout::RankMajor if i > 0 => {}
                        MoeLayout::RankMajor => of[0].push(ResultRow { at, maker: self.me, source, token }),
                        _ => of[(expert - first) as usize].push(ResultRow {
                            at: 0,
                            maker: expert,
                            source,
                            token,
                        }),
                    }
                }
            }
        }
        let mut begin = 0;
        for rows in &mut of {
            if point.layout != MoeLayout::RankMajor {
                rows.iter_mut().enumerate().for_each(|(i, place)| place.at = begin + i);
            }
            begin += match point.layout {
                MoeLayout::Flat => rows.len(),
                _ => self.rows / self.local as usize,
            };
        }
        of.into_iter().flatten().collect()
    }

    /// Writes what experts make of the tokens that they will get.
    pub(super) fn produce(&self) -> Result<Vec<ResultRow>> {
        let (places, hidden) = (self.places(), self.point.hidden);
        for place in &places {
            let row = self.sequence.row(place.maker, place.source, place.token, hidden);
            self.y.slice(place.at * hidden as usize..)?.write(row)?;
        }
        Ok(places)
    }

    /// What is there must be what should be.
    pub(super) fn verify(&self, places: &[ResultRow]) -> Result<()> {
        let (point, hidden) = (&self.point, self.point.hidden as usize);
        let wrong = |what: String| {
            Err(Failure::new(format!("moe, {point}: rank {}: {what}: its figures mean nothing", self.me)))
        };
        let sources = self.sources.to_vec()?;
        let row = if point.payload == MoePayload::Fp8 { hidden } else { 2 * hidden };
        let (mut x, mut side) = (vec![0; row], vec![0; hidden.div_ceil(128) * 4]);
        let step = places.len().div_ceil(LOOKED_AT).max(1);
        for (i, place) in places.iter().enumerate() {
            if sources[place.at] != (place.source * point.tokens + place.token) as i32 {
                return wrong(format!("row {} is of {}", place.at, sources[place.at]));
            }
            if i % step != self.seed as usize % step {
                continue;
            }
            let token = token(self.seed, place.source, place.token, point.hidden);
            self.out_x.slice(place.at * row..(place.at + 1) * row)?.read(&mut x)?;
            let right = match point.payload {
                MoePayload::Fp8 => {
                    let bytes = side.len();
                    self.out_side.slice(place.at * bytes..(place.at + 1) * bytes)?.read(&mut side)?;
                    let scales: Vec<u8> = token.scales.iter().flat_map(|scale| scale.to_le_bytes()).collect();
                    x == token.fp8 && side == scales
                }
                MoePayload::Bf16 => x == token.bf16.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>(),
            };
            if !right {
                return wrong(format!(
                    "row {}, token {} of {}, is another one",
                    place.at, place.token, place.source
                ));
            }
        }
        let out = self.out.to_vec()?;
        let mut sum = vec![0f32; hidden];
        for token in 0..point.tokens {
            sum.fill(0.0);
            let chosen = choice(self.seed, self.me, token, point.experts, point.top_k);
            for rank in 0..self.ranks {
                let mut theirs = chosen.iter().filter(|(expert, _)| expert / self.local == rank).peekable();
                if point.layout == MoeLayout::RankMajor {
                    if theirs.peek().is_some() {
                        self.sequence.add(&mut sum, 1.0, rank, self.me, token);
                    }
                    continue;
                }
                theirs.for_each(|(expert, weight)| {
                    self.sequence.add(&mut sum, *weight, *expert, self.me, token)
                });
            }
            let seen = &out[token as usize * hidden..][..hidden];
            // -0 is what some sums of zeros are.
            let differs =
                |(seen, sum): (&u16, &f32)| *seen != bf16_of(*sum) && (*seen & 0x7fff != 0 || *sum != 0.0);
            if let Some(column) = seen.iter().zip(&sum).position(differs) {
                return wrong(format!(
                    "token {token}, column {column}: {:#x} for {}",
                    seen[column], sum[column]
                ));
            }
        }
        self.world.barrier_all()?;
        Ok(())
    }
}
