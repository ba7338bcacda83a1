//! The host: what helps to tell one machine from another when two reports differ.

use serde::Serialize;

/// The machine that this process runs on.
#[derive(Debug, Serialize)]
pub(crate) struct Machine {
    /// Its host name.
    pub(crate) name: String,
    /// The processor, as the kernel names it.
    pub(crate) cpu: String,
    /// Cores that this process may use.
    pub(crate) cores: usize,
    /// Bytes of memory.
    pub(crate) memory: u64,
    /// Kernel release.
    pub(crate) kernel: String,
}

impl Machine {
    /// This one. What cannot be read is `unknown`.
    pub(crate) fn here() -> Machine {
        let cpu = field("/proc/cpuinfo", "model name");
        let memory = field("/proc/meminfo", "MemTotal");
        let kib = memory.as_ref().and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok());
        Machine {
            name: line("/proc/sys/kernel/hostname"),
            cpu: cpu.unwrap_or_else(|| format!("unknown {}", std::env::consts::ARCH)),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory: kib.unwrap_or(0) << 10,
            kernel: line("/proc/sys/kernel/osrelease"),
        }
    }
}

/// The release of NVIDIA's kernel module, such as `580.65.06`, where one is loaded.
pub(crate) fn nvidia_module() -> Option<String> {
    release(&std::fs::read_to_string("/proc/driver/nvidia/version").ok()?)
}

/// The release in the module's own description: the first word of its first line that is numbers and dots.
fn release(text: &str) -> Option<String> {
    let is_release = |word: &&str| word.contains('.') && word.split('.').all(|n| n.parse::<u32>().is_ok());
    text.lines().next()?.split_whitespace().find(is_release).map(str::to_owned)
}

fn line(path: &str) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().next().map(str::trim).filter(|line| !line.is_empty()).unwrap_or("unknown").to_owned()
}

/// The first `name : value` of a file.
fn field(path: &str, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let of = |line: &str| Some(line.strip_prefix(name)?.split_once(':')?.1.trim().to_owned());
    text.lines().find_map(of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_module_describes_itself_in_two_ways() {
        let closed = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\nGCC 12.3.0";
        let open = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (dvs)";
        assert_eq!(release(closed).as_deref(), Some("535.104.05"));
        assert_eq!(release(open).as_deref(), Some("580.65.06"));
        assert_eq!(release("nothing\n1.2"), None);
    }
}
