//! What a launch may ask for. The CUDA limits are those of an sm_90 GPU, so that what runs here runs there;
//! the others are this machine's: a CUDA thread costs a stack and two of the process's memory mappings (65530
//! by default).

/// Threads of a block.
pub const MAX_BLOCK_THREADS: u64 = 1024;
/// Threads of a block in x, y and z.
pub const MAX_BLOCK: [u32; 3] = [1024, 1024, 64];
/// Blocks of a grid in x, y and z.
pub const MAX_GRID: [u32; 3] = [i32::MAX as u32, 65535, 65535];
/// Bytes of dynamic shared memory of a block.
pub const MAX_SHARED: usize = 227 * 1024;

/// Limits that the user may set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// CUDA threads resident at once in one launch (`RUSHMEM_CPU_THREADS`, default 16384).
    pub threads: u64,
    /// Blocks resident at once in one launch (`RUSHMEM_CPU_BLOCKS`, default 1024): each is an OS thread.
    pub blocks: u64,
    /// Bytes of stack of a CUDA thread (`RUSHMEM_CPU_STACK`, default 128 KiB, K and M understood).
    /// Overrunning it ends the process with SIGSEGV.
    pub stack: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { threads: 16384, blocks: 1024, stack: 128 << 10 }
    }
}

impl Limits {
    /// The limits that the environment asks for. The error names the variable.
    pub fn from_env() -> Result<Self, String> {
        let mut limits = Limits::default();
        let mut set = |name: &str, least: u64, most: u64, put: &mut dyn FnMut(&mut Limits, u64)| {
            let Some(text) = std::env::var_os(name).filter(|text| !text.is_empty()) else { return Ok(()) };
            let value = text.to_str().and_then(parse_size).filter(|value| (least..=most).contains(value));
            let Some(value) = value else {
                return Err(format!(
                    "{name}={} is not a number from {least} to {most}",
                    text.to_string_lossy()
                ));
            };
            put(&mut limits, value);
            Ok(())
        };
        set("RUSHMEM_CPU_THREADS", 1, 30_000, &mut |limits, value| limits.threads = value)?;
        set("RUSHMEM_CPU_BLOCKS", 1, 30_000, &mut |limits, value| limits.blocks = value)?;
        set("RUSHMEM_CPU_STACK", 16 << 10, 64 << 20, &mut |limits, value| limits.stack = value as usize)?;
        Ok(limits)
    }

    /// The largest number of blocks of this shape that can all be resident; 0 where not even one can.
    pub fn max_blocks(&self, block: [u32; 3], shared: usize) -> u64 {
        if block_problem(block, shared).is_some() {
            return 0;
        }
        (self.threads / volume(block)).min(self.blocks)
    }
}

/// Threads of a block, blocks of a grid.
pub(crate) fn volume(dims: [u32; 3]) -> u64 {
    dims.iter().fold(1u64, |product, &dim| product.saturating_mul(u64::from(dim)))
}

/// Why a block of this shape can never run.
pub(crate) fn block_problem(block: [u32; 3], shared: usize) -> Option<String> {
    let [x, y, z] = block;
    let [most_x, most_y, most_z] = MAX_BLOCK;
    if block.contains(&0) {
        Some(format!("the block ({x}, {y}, {z}) has no threads"))
    } else if volume(block) > MAX_BLOCK_THREADS {
        Some(format!(
            "a block has at most {MAX_BLOCK_THREADS} threads, ({x}, {y}, {z}) are {}",
            volume(block)
        ))
    } else if block.iter().zip(MAX_BLOCK).any(|(&dim, most)| dim > most) {
        Some(format!("a block is at most ({most_x}, {most_y}, {most_z}), not ({x}, {y}, {z})"))
    } else if shared > MAX_SHARED {
        Some(format!("a block has at most {MAX_SHARED} bytes of dynamic shared memory, not {shared}"))
    } else {
        None
    }
}

fn parse_size(text: &str) -> Option<u64> {
    let text = text.trim();
    let (digits, shift) = match text.as_bytes().last()? {
        b'k' | b'K' => (&text[..text.len() - 1], 10),
        b'm' | b'M' => (&text[..text.len() - 1], 20),
        _ => (text, 0),
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(parse_size("12"), Some(12));
        assert_eq!(parse_size(" 3K"), Some(3072));
        assert_eq!(parse_size("2m"), Some(2 << 20));
        for bad in ["", "K", "-1", "1.5", "99999999999999999999", "18446744073709551615K", "x"] {
            assert_eq!(parse_size(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn residency() {
        let limits = Limits { threads: 1000, blocks: 7, stack: 65536 };
        assert_eq!(limits.max_blocks([100, 1, 1], 0), 7);
        assert_eq!(limits.max_blocks([10, 10, 3], 0), 3);
        assert_eq!(limits.max_blocks([1001, 1, 1], 0), 0);
        assert_eq!(limits.max_blocks([1, 1, 65], 0), 0);
        assert_eq!(limits.max_blocks([0, 1, 1], 0), 0);
        assert_eq!(limits.max_blocks([1, 1, 1], MAX_SHARED), 7);
        assert_eq!(limits.max_blocks([1, 1, 1], MAX_SHARED + 1), 0);
        assert_eq!(limits.max_blocks([u32::MAX; 3], 0), 0);
    }
}
