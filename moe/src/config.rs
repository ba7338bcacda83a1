//! What an exchange is to carry: sizes, types, layout; and the check of it.

use crate::{Error, Result};

/// The most that the kernels have room for (`kernels/exchange.h`).
const MOST_TOP_K: u32 = 32;
pub(crate) const MOST_RANKS: u32 = 256;
/// Numbers of experts travel in 16 bits, of which two values are taken.
const MOST_EXPERTS: u32 = 0xfffe;
/// Columns that share a scale.
pub(crate) const GROUP: u32 = 128;

/// A type of floating-point numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Float {
    /// bfloat16.
    Bf16,
    /// IEEE half precision.
    F16,
    /// IEEE single precision.
    F32,
}

impl Float {
    /// Its size in bytes.
    pub fn bytes(self) -> u32 {
        match self {
            Float::Bf16 | Float::F16 => 2,
            Float::F32 => 4,
        }
    }
}

/// A format of 8-bit floating-point numbers. What is too large for it becomes its largest number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fp8 {
    /// Three bits of mantissa; up to 448.
    E4m3,
    /// Two bits of mantissa; up to 57344.
    E5m2,
}

/// How the scales of fp8 are said, one for each 128 columns of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scales {
    /// f32: the largest magnitude of the 128 over the format's largest number.
    F32,
    /// UE8M0: the power of two at or above that, as its exponent's byte (127 is 1). A token's bytes are
    /// padded to a multiple of four.
    Ue8m0,
}

/// What dispatch moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Payload {
    /// Tokens of this type, as they are.
    Floats(Float),
    /// Tokens of bf16, which become fp8 with scales on their way.
    Cast(Fp8, Scales),
    /// Tokens of `row` bytes whatever they are, with `side` bytes beside each: its scales, for example.
    /// Both multiples of 16.
    Bytes {
        /// Bytes of a token.
        row: u32,
        /// Bytes beside it.
        side: u32,
    },
}

/// Where received tokens lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Layout {
    /// `[local experts][capacity][hidden]`: each expert's tokens in the order of sources and of their tokens;
    /// counts say how many. A token lies there once for each of its experts.
    ExpertMajor,
    /// `[ranks][max_tokens][hidden]`: a token in its own row of its source, once. `experts` says which of
    /// this rank's it is for; rows of tokens that are for none are not written. Combine adds one row of each
    /// rank, which the program has weighted.
    RankMajor,
    /// `[capacity][hidden]`: the experts' tokens one behind the other, each expert's part rounded up to
    /// `align` rows.
    Flat {
        /// Rows to which an expert's part is rounded up; 1 or more.
        align: u32,
    },
}

/// What an exchange is to carry. The same on all its ranks.
///
/// ```
/// use rushmem_moe::{Config, Float, Fp8, Layout, Payload, Scales};
///
/// // 128 tokens of 7168 columns, 8 of 256 experts each; fp8 there and bf16 back.
/// let config = Config::new(128, 7168, 256, 8)
///     .payload(Payload::Cast(Fp8::E4m3, Scales::F32))
///     .combine(Float::Bf16, Float::Bf16)
///     .layout(Layout::ExpertMajor);
/// assert!(config.memory(2).unwrap().symmetric < 64 << 20);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct Config {
    pub(crate) max_tokens: u32,
    pub(crate) hidden: u32,
    pub(crate) experts: u32,
    pub(crate) top_k: u32,
    pub(crate) payload: Payload,
    pub(crate) produced: Float,
    pub(crate) output: Float,
    pub(crate) layout: Layout,
    pub(crate) capacity: Option<u32>,
    pub(crate) rounded: bool,
    pub(crate) weighted: bool,
    pub(crate) wide: bool,
    pub(crate) few: Option<u32>,
    pub(crate) blocks: Option<u32>,
    pub(crate) threads: Option<u32>,
    pub(crate) shared_routing: Option<u32>,
}

impl Config {
    /// At most `max_tokens` tokens a rank in a round, of `hidden` columns (a multiple of 16), each for
    /// `top_k` of `experts` experts. Rank r of n has the experts from `r * ceil(experts / n)` on, as many, as
    /// long as there are any.
    ///
    /// Unless more is said: bf16 there and back, expert-major, with weights, numbers of experts as `i32`.
    pub fn new(max_tokens: u32, hidden: u32, experts: u32, top_k: u32) -> Config {
        Config {
            max_tokens,
            hidden,
            experts,
            top_k,
            payload: Payload::Floats(Float::Bf16),
            produced: Float::Bf16,
            output: Float::Bf16,
            layout: Layout::ExpertMajor,
            capacity: None,
            rounded: false,
            weighted: true,
            wide: false,
            few: None,
            blocks: None,
            threads: None,
            shared_routing: None,
        }
    }

    /// What dispatch moves.
    pub fn payload(self, payload: Payload) -> Config {
        Config { payload, ..self }
    }

    /// What experts produce, and what combine makes of it. It adds in f32.
    pub fn combine(self, produced: Float, output: Float) -> Config {
        Config { produced, output, ..self }
    }

    /// Where received tokens lie.
    pub fn layout(self, layout: Layout) -> Config {
        Config { layout, ..self }
    }

    /// Rows of each local expert, or of all in [`Layout::Flat`]. Unless it is said, as many as can come: more
    /// is never needed where no token names an expert twice. With less, a round that needs more is refused on
    /// all ranks ([`Why::OverCapacity`](crate::Why::OverCapacity)). Where tokens name an expert of
    /// [`Layout::ExpertMajor`] so often that its rows do not do, the last row is that of several tokens, and
    /// its rank gets the same error.
    pub fn capacity(self, rows: u32) -> Config {
        Config { capacity: Some(rows), ..self }
    }

    /// The sum of a rank's results of a token travels in the type that experts produce: half of the bytes of
    /// f32, where that has 16 bits, and one rounding more. For many tokens.
    pub fn rounded_sums(self) -> Config {
        Config { rounded: true, ..self }
    }

    /// Without weights: combine adds the experts' results as they are.
    pub fn unweighted(self) -> Config {
        Config { weighted: false, ..self }
    }

    /// Numbers of experts are `i64`, as DeepEP's, not `i32`.
    pub fn wide_experts(self) -> Config {
        Config { wide: true, ..self }
    }

    /// Rounds in which a source has at most so many tokens send data and flag in one store: less latency, and
    /// more bytes. An exchange of at most so many `max_tokens` that is not flat has kernels of its own for
    /// that, which take less time still. Unless it is said, it is 32, and for such an exchange 128 where all
    /// ranks together have at most 256, as was measured; 0 turns it off. The same on all ranks.
    pub fn few(self, tokens: u32) -> Config {
        Config { few: Some(tokens), ..self }
    }

    /// Blocks of each launch: the most multiprocessors that it occupies. Ranks may differ.
    pub fn blocks(self, blocks: u32) -> Config {
        Config { blocks: Some(blocks), ..self }
    }

    /// Threads of a block, a multiple of 32.
    pub fn threads(self, threads: u32) -> Config {
        Config { threads: Some(threads), ..self }
    }

    /// Shared memory, in bytes, that a block which receives may take for a copy of the experts of all tokens
    /// of all ranks, which it reads several times, and for its counts. Where that takes more, or the device
    /// has less, it reads them in the memory in which they came, which takes longer and works for any number
    /// of tokens. Unless it is said, as much as the device has; with 0 there is no copy. Ranks may differ.
    pub fn shared_routing(self, bytes: u32) -> Config {
        Config { shared_routing: Some(bytes), ..self }
    }

    /// Experts of a rank, of `ranks`: the last may have fewer.
    pub fn experts_a_rank(&self, ranks: u32) -> u32 {
        self.experts.div_ceil(ranks.max(1))
    }

    /// Rows of each local expert, or of all in [`Layout::Flat`]; in [`Layout::RankMajor`] of each source.
    pub fn rows(&self, ranks: u32) -> u32 {
        let all = ranks.saturating_mul(self.max_tokens);
        match self.layout {
            Layout::RankMajor => self.max_tokens,
            Layout::ExpertMajor => self.capacity.unwrap_or(all),
            Layout::Flat { align } => {
                let tokens = all.saturating_mul(self.top_k.min(self.experts_a_rank(ranks)));
                let padding = self.experts_a_rank(ranks).saturating_mul(align.saturating_sub(1));
                self.capacity.unwrap_or(tokens.saturating_add(padding))
            }
        }
    }

    /// Rows of received tokens in all, which is how many rows `x` of [`Received`](crate::Received) has.
    pub fn all_rows(&self, ranks: u32) -> u64 {
        let each = u64::from(self.rows(ranks));
        match self.layout {
            Layout::ExpertMajor => u64::from(self.experts_a_rank(ranks)) * each,
            Layout::RankMajor => u64::from(ranks) * each,
            Layout::Flat { .. } => each,
        }
    }

    /// Whether ranks' sums are of the type that experts produce, whatever number of terms they have.
    pub(crate) fn sums_are_rows(&self) -> bool {
        self.rounded || self.produced == Float::F32 || self.layout == Layout::RankMajor
    }

    /// Most tokens of a rank in a round.
    pub fn max_tokens(&self) -> u32 {
        self.max_tokens
    }

    /// Experts of a token.
    pub fn top_k(&self) -> u32 {
        self.top_k
    }

    /// Whether dispatch casts tokens to fp8.
    pub fn is_cast(&self) -> bool {
        matches!(self.payload, Payload::Cast(..))
    }

    /// Whether dispatch takes weights.
    pub fn is_weighted(&self) -> bool {
        self.weighted
    }

    /// Whether numbers of experts are `i64`.
    pub fn is_wide(&self) -> bool {
        self.wide
    }

    /// Bytes of a token as dispatch takes it, before it is cast.
    pub fn token_bytes(&self) -> u32 {
        if self.is_cast() {
            self.hidden * Float::Bf16.bytes()
        } else {
            self.row_bytes()
        }
    }

    /// Bytes of a row that an expert produces, and of a sum.
    pub fn combine_bytes(&self) -> (u32, u32) {
        (self.hidden * self.produced.bytes(), self.hidden * self.output.bytes())
    }

    /// Bytes of a received token, without what is beside it.
    pub fn row_bytes(&self) -> u32 {
        match self.payload {
            Payload::Floats(float) => self.hidden * float.bytes(),
            Payload::Cast(..) => self.hidden,
            Payload::Bytes { row, .. } => row,
        }
    }

    /// Bytes beside a received token: its scales, or the side bytes.
    pub fn side_bytes(&self) -> u32 {
        match self.payload {
            Payload::Floats(_) => 0,
            Payload::Cast(_, Scales::F32) => self.hidden.div_ceil(GROUP) * 4,
            Payload::Cast(_, Scales::Ue8m0) => self.hidden.div_ceil(GROUP).next_multiple_of(4),
            Payload::Bytes { side, .. } => side,
        }
    }

    /// Where received tokens lie.
    pub fn layout_of_rows(&self) -> Layout {
        self.layout
    }

    /// Refuses what the kernels cannot do.
    pub(crate) fn check(&self, ranks: u32) -> Result<()> {
        let refused = |text: String| Err(Error::Invalid(text));
        if ranks == 0 || ranks > MOST_RANKS {
            return refused(format!("an exchange has 1 to {MOST_RANKS} ranks, not {ranks}"));
        }
        if self.max_tokens == 0 || self.max_tokens > 1 << 16 {
            return refused(format!("max_tokens is 1 to 65536, not {}", self.max_tokens));
        }
        if self.hidden == 0 || self.hidden % 16 != 0 || self.hidden > 1 << 16 {
            return refused(format!("hidden is a multiple of 16, 65536 at most, not {}", self.hidden));
        }
        if self.experts == 0 || self.experts > MOST_EXPERTS {
            return refused(format!("there are 1 to {MOST_EXPERTS} experts, not {}", self.experts));
        }
        if self.top_k == 0 || self.top_k > MOST_TOP_K {
            return refused(format!("top_k is 1 to {MOST_TOP_K}, not {}", self.top_k));
        }
        if let Payload::Bytes { row, side } = self.payload {
            if row == 0 || row % 16 != 0 || side % 16 != 0 || row > 1 << 20 || side > 1 << 20 {
                return refused(format!(
                    "rows of {row} bytes with {side} beside them: both are multiples of 16"
                ));
            }
        }
        if matches!(self.layout, Layout::Flat { align: 0 }) {
            return refused("the flat layout's align is 1 or more, not 0".into());
        }
        if self.blocks == Some(0) {
            return refused("a launch has 1 block or more, not 0".into());
        }
        if self.threads.is_some_and(|threads| threads % 32 != 0 || !(32..=1024).contains(&threads)) {
            return refused(format!(
                "a block has 32 to 1024 threads, a multiple of 32, not {}",
                self.threads.unwrap_or(0)
            ));
        }
        let (rows, most) = (self.all_rows(ranks), i32::MAX);
        if rows > most as u64 {
            return refused(format!(
                "{ranks} ranks of {} tokens with top_k {} have {rows} rows of received tokens, more than {most}, \
                 which their 32-bit numbers can say: lower max_tokens, or the capacity",
                self.max_tokens, self.top_k
            ));
        }
        Ok(())
    }
}
