//! The memory of an exchange: one symmetric allocation, cut into parts, and what a launch knows of it
//! (`struct exchange` of `kernels/exchange.h`, which also says why nobody overwrites what another reads).
//!
//! Of r ranks, t tokens, k experts each: r * t rows for dispatch, twice; t * min(k, 2 r) rows for combine.

use crate::config::{Config, Layout, MOST_RANKS};
use crate::{Payload, Result};

/// Blocks whose rounds are counted: more are never launched.
pub(crate) const MOST_BLOCKS: u32 = 1024;
/// Words that say what was wrong (`failure_words`).
pub(crate) const FAILURE_WORDS: usize = 6;
/// Bytes of a packet, and of what it carries.
const PACKET: u64 = 16;
const CARRIED: u64 = 8;

/// How much memory an exchange takes, in bytes. The buffers of received tokens are the program's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// Of the symmetric heap, on each PE.
    pub symmetric: u64,
}

/// What each launch knows of an exchange, as the kernels take it.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Exchange {
    pub(crate) routing: u64,
    pub(crate) rows: u64,
    pub(crate) row_flags: u64,
    pub(crate) row_packets: u64,
    pub(crate) results: u64,
    pub(crate) result_flags: u64,
    pub(crate) result_packets: u64,
    pub(crate) scratch: u64,
    pub(crate) positions: u64,
    pub(crate) records: u64,
    pub(crate) sent: u64,
    pub(crate) received: u64,
    pub(crate) combined: u64,
    pub(crate) failure: u64,
    pub(crate) absent: [u64; MOST_RANKS as usize / 64],
    pub(crate) words: u32,
    pub(crate) max_tokens: u32,
    pub(crate) hidden: u32,
    pub(crate) experts: u32,
    pub(crate) experts_a_rank: u32,
    pub(crate) top_k: u32,
    pub(crate) capacity: u32,
    pub(crate) align: u32,
    pub(crate) few: u32,
    pub(crate) few_back: u32,
    pub(crate) parts: u32,
    pub(crate) data_bytes: u32,
    pub(crate) side_bytes: u32,
    pub(crate) row_bytes: u32,
    pub(crate) row_words: u32,
    pub(crate) routing_words: u32,
    pub(crate) units: u32,
    pub(crate) unit_bytes: u32,
    pub(crate) rounded: u32,
    pub(crate) weighted: u32,
    pub(crate) wide: u32,
    pub(crate) experts_a_rank_reciprocal: f32,
}

/// Where each part begins, from the allocation's start.
pub(crate) struct Parts {
    pub(crate) offsets: Exchange,
    pub(crate) bytes: u64,
}

/// Tokens up to which rows, and sums of results, are sent as packets, unless the configuration says.
const FEW: u32 = 32;
const FEW_BACK: u32 = 32;
/// The most tokens of exchanges of more than [`FEW`] with kernels for few, unless the configuration says, and
/// the most of all ranks together: more were not measured with them.
const MOST_TOKENS_OF_FEW: u32 = 128;
const MOST_ROWS_OF_FEW: u64 = 256;
/// How few.h cuts rows and sums: lanes of a warp, each with three words of a row, or six columns of a sum.
const LANES: u32 = 32;
const PART_WORDS: u32 = 3 * LANES;
const PART_COLUMNS: u32 = 6 * LANES;
/// Packets of a line of 128 bytes, at which packed rows begin.
const LINE_PACKETS: u32 = 8;
/// Shared memory of a block of such an exchange, at most: less than any device has.
const MOST_SHARED_OF_FEW: u32 = 32 << 10;
/// Ranks of an exchange for few tokens, at most (`most_few_ranks`).
const MOST_FEW_RANKS: u32 = 32;
/// The most parts of a row, each with a flag (`flags_of`).
const PARTS: u32 = 16;

impl Config {
    /// How much memory an exchange of so many ranks takes, all of them near.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) for what cannot be.
    pub fn memory(&self, ranks: u32) -> Result<Memory> {
        self.check(ranks)?;
        Ok(Memory { symmetric: self.parts(ranks, false).bytes })
    }

    /// How it is cut into parts. `far`: some rank is not mapped by another.
    pub(crate) fn parts(&self, ranks: u32, far: bool) -> Parts {
        let (n, t, k) = (u64::from(ranks), u64::from(self.max_tokens), u64::from(self.top_k));
        let data_bytes = self.row_bytes();
        let side_bytes = self.side_bytes();
        let row_bytes = data_bytes + side_bytes.next_multiple_of(16);
        let side_words = match self.payload {
            // A packet for each scale.
            Payload::Cast(..) => self.hidden.div_ceil(crate::config::GROUP),
            _ => side_bytes / CARRIED as u32,
        };
        let is_few = self.is_few(ranks, far);
        let row_words = match (is_few, self.payload) {
            (false, _) => data_bytes / CARRIED as u32 + side_words,
            // Parts of 32 packets, and one with the scales; lines for packed rows.
            (true, Payload::Cast(..)) => (self.parts_of_few() * (LANES + 1)).next_multiple_of(LINE_PACKETS),
            (true, _) => self.parts_of_few() * LANES,
        };
        let routing_words = self.top_k.div_ceil(4) + if self.weighted { self.top_k.div_ceil(2) } else { 0 };
        // A sum of several experts of a rank is of f32, twice as long as a row of 16-bit numbers.
        let several = if self.sums_are_rows() { 1 } else { 2 };
        let units = self.top_k.min(several * ranks);
        let unit_bytes = self.hidden * self.produced.bytes();
        let unit_packets = match is_few {
            false => u64::from(unit_bytes) / CARRIED,
            true => u64::from(self.hidden.div_ceil(PART_COLUMNS) * LANES * (self.produced.bytes() / 2)),
        };
        let at_most = |most: u32| match (is_few, far) {
            (true, _) => self.max_tokens,
            (_, true) => 0,
            _ => self.few.unwrap_or(most).min(self.max_tokens),
        };
        let (few, few_back) = (at_most(FEW), at_most(FEW_BACK));
        let parts_of_a_row = if far { 1 } else { PARTS };

        let mut end = 0u64;
        let mut part = |bytes: u64| {
            let begin = end;
            end += bytes.next_multiple_of(128);
            begin
        };
        let scratch_each = u64::from(row_bytes.max(2 * unit_bytes));
        // What is neither, few tokens do without.
        let flagged = u64::from(!is_few);
        let offsets = Exchange {
            routing: part(2 * n * (1 + t * u64::from(routing_words)) * PACKET),
            rows: part(flagged * 2 * n * t * u64::from(row_bytes)),
            row_flags: part(flagged * 2 * n * t * u64::from(parts_of_a_row) * 8),
            row_packets: part(2 * n * u64::from(few) * u64::from(row_words) * PACKET),
            results: part(flagged * t * u64::from(units) * u64::from(unit_bytes)),
            result_flags: part(flagged * t * u64::from(units) * u64::from(parts_of_a_row) * 8),
            result_packets: part(u64::from(few_back) * u64::from(units) * unit_packets * PACKET),
            scratch: part(if far { u64::from(MOST_WARPS_FAR) * scratch_each } else { 0 }),
            positions: part(flagged * n * t * k * 4),
            records: part(if is_few { (n + 1) * t * (1 + k) * 8 } else { 0 }),
            sent: part(u64::from(MOST_BLOCKS) * 8),
            received: part(u64::from(MOST_BLOCKS) * 8),
            combined: part(u64::from(MOST_BLOCKS) * 8),
            failure: part(FAILURE_WORDS as u64 * 8),
            absent: [0; MOST_RANKS as usize / 64],
            words: MOST_BLOCKS,
            max_tokens: self.max_tokens,
            hidden: self.hidden,
            experts: self.experts,
            experts_a_rank: self.experts_a_rank(ranks),
            top_k: self.top_k,
            capacity: self.rows(ranks),
            align: match self.layout {
                Layout::Flat { align } => align,
                _ => 1,
            },
            few,
            few_back,
            parts: parts_of_a_row,
            data_bytes,
            side_bytes,
            row_bytes,
            row_words,
            routing_words,
            units,
            unit_bytes,
            rounded: self.rounded.into(),
            weighted: self.weighted.into(),
            wide: self.wide.into(),
            experts_a_rank_reciprocal: 1.0 / self.experts_a_rank(ranks) as f32,
        };
        Parts { offsets, bytes: end }
    }

    /// Whether kernels of their own serve the exchange (`kernels/few.h`): all rows and sums are packets, no
    /// expert can get more tokens than it has room for, and what blocks know of a round takes little memory.
    pub(crate) fn is_few(&self, ranks: u32, far: bool) -> bool {
        let rows = u64::from(ranks) * u64::from(self.max_tokens);
        let has_room = match self.layout {
            Layout::ExpertMajor => u64::from(self.rows(ranks)) >= rows,
            Layout::RankMajor => true,
            Layout::Flat { .. } => false,
        };
        let measured =
            self.max_tokens <= FEW || (self.max_tokens <= MOST_TOKENS_OF_FEW && rows <= MOST_ROWS_OF_FEW);
        let most_shared = self.shared_routing.unwrap_or(MOST_SHARED_OF_FEW).min(MOST_SHARED_OF_FEW);
        !far && has_room
            && ranks <= MOST_FEW_RANKS
            && self.few.map_or(measured, |few| self.max_tokens <= few)
            && self.shared_bytes_of_few(ranks, rows) <= u64::from(most_shared)
    }

    /// Its items of work, each a warp's, in a launch of dispatch or combine, whichever has more: parts of
    /// rows and of sums, and tokens' routing.
    pub(crate) fn items_of_few(&self, ranks: u32) -> u64 {
        let (n, t) = (u64::from(ranks), u64::from(self.max_tokens));
        (n + 1) * t * u64::from((self.parts_of_few() + 1).max(self.hidden.div_ceil(PART_COLUMNS)))
    }

    /// Parts of a row, of three words a lane.
    fn parts_of_few(&self) -> u32 {
        match self.payload {
            Payload::Cast(..) => self.hidden.div_ceil(4 * PART_WORDS),
            _ => ((self.row_bytes() + self.side_bytes()) / 4).div_ceil(PART_WORDS),
        }
    }

    /// Dynamic shared memory of its dispatch (`struct routes` of `kernels/few_routing.h`): the experts of all
    /// tokens, and a bit of each token for each of a rank's experts.
    pub(crate) fn shared_bytes_of_few(&self, ranks: u32, tokens: u64) -> u64 {
        let bits = tokens.div_ceil(32) * u64::from(self.experts_a_rank(ranks));
        tokens * u64::from(self.top_k.div_ceil(4)) * CARRIED + bits * 4
    }

    /// Dynamic shared memory of a launch that receives (`table_of` of `kernels/routing.h`): the experts of so
    /// many tokens, which are all tokens of all ranks or none; a count for each expert, and one for each of a
    /// rank's for each of so many warps that take rows (for one in the rank-major layout).
    pub(crate) fn shared_bytes(&self, ranks: u32, tokens: u64, warps: u32) -> u64 {
        let warps = if self.layout == Layout::RankMajor { 1 } else { warps };
        let experts = u64::from(self.experts_a_rank(ranks)) * u64::from(warps) + u64::from(self.experts);
        tokens * u64::from(self.top_k.div_ceil(4)) * CARRIED + experts * 4
    }
}

/// Warps of a launch where a rank is far: each has room for a row.
pub(crate) const MOST_WARPS_FAR: u32 = 256;

impl Exchange {
    /// With its memory at `to` and not at `from`.
    pub(crate) fn moved(mut self, from: u64, to: u64) -> Exchange {
        for part in [
            &mut self.routing,
            &mut self.rows,
            &mut self.row_flags,
            &mut self.row_packets,
            &mut self.results,
            &mut self.result_flags,
            &mut self.result_packets,
            &mut self.scratch,
            &mut self.positions,
            &mut self.records,
            &mut self.sent,
            &mut self.received,
            &mut self.combined,
            &mut self.failure,
        ] {
            *part = *part - from + to;
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Float, Fp8, Scales};

    /// The figure: DeepEP takes 1,908 MB.
    #[test]
    fn a_decoding_exchange_takes_little_memory() {
        let config = Config::new(128, 7168, 256, 8);
        for (payload, most) in
            [(Payload::Cast(Fp8::E4m3, Scales::F32), 64), (Payload::Floats(Float::Bf16), 64)]
        {
            let bytes = config.payload(payload).memory(2).unwrap().symmetric;
            assert!(bytes <= most << 20, "{payload:?}: {bytes}");
        }
    }

    #[test]
    fn parts_do_not_overlap() {
        let parts = Config::new(5, 48, 7, 3).few(2).parts(3, false);
        let o = parts.offsets;
        let begins =
            [o.routing, o.rows, o.row_flags, o.row_packets, o.results, o.result_flags, o.result_packets];
        assert!(begins.windows(2).all(|two| two[0] < two[1]), "{begins:?}");
        assert!(o.failure + 8 * FAILURE_WORDS as u64 <= parts.bytes);
    }
}
