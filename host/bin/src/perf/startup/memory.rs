//! What a PE has of memory: of its GPU's, how much is free for everybody; of the host's, what is resident.

use serde::{Deserialize, Serialize};

use crate::gpu::Gpu;
use crate::job::Result;

/// One reading.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Reading {
    /// Free bytes of this PE's GPU, which other processes use, too; none on the CPU device.
    pub(super) gpu_free: Option<u64>,
    /// Resident bytes of this process, a page that several processes have shared out among them; none where
    /// the kernel does not tell.
    pub(super) host: Option<u64>,
}

impl Reading {
    pub(super) fn take(gpu: Option<&Gpu>) -> Result<Reading> {
        let gpu_free = gpu.map(Gpu::free).transpose()?;
        Ok(Reading { gpu_free, host: host() })
    }
}

fn host() -> Option<u64> {
    // The first has the sums; kernels without it have the second, a paragraph for each mapping.
    let text = ["/proc/self/smaps_rollup", "/proc/self/smaps"]
        .iter()
        .find_map(|at| std::fs::read_to_string(at).ok())?;
    proportional(&text)
}

/// The sum of the `Pss` lines.
fn proportional(text: &str) -> Option<u64> {
    let kib = |line: &str| line.strip_prefix("Pss:")?.split_whitespace().next()?.parse::<u64>().ok();
    text.lines().filter_map(kib).reduce(|a, b| a + b).map(|kib| kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_mappings_are_counted_once() {
        let text = "7f00-7f01 r--p 00000000 00:00 0\nSize: 8 kB\nRss: 8 kB\nPss: 4 kB\nPss_Dirty: 4 kB\n\
                    7f02-7f03 r--p 00000000 00:00 0\nPss:   38 kB\nSwapPss: 9 kB\n";
        assert_eq!(proportional(text), Some(42 << 10));
        assert_eq!(proportional(""), None);
    }

    #[test]
    fn memory_that_is_written_to_is_seen() {
        let before = Reading::take(None).expect("no GPU is asked");
        let Some(before) = before.host else {
            eprintln!("SKIP memory_that_is_written_to_is_seen: this kernel does not tell what is resident");
            return;
        };
        const BYTES: usize = 32 << 20;
        let memory = std::hint::black_box(vec![1_u8; BYTES]);
        let after = Reading::take(None).expect("no GPU is asked").host.expect("it was known before");
        let grown = after.saturating_sub(before) as usize;
        assert!((BYTES / 2..BYTES * 2).contains(&grown), "{grown} bytes for {BYTES}");
        drop(memory);
    }
}
