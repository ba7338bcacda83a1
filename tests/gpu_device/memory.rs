//! How much of the GPUs' memory is in use, as another process sees it.

use std::process::Command;

/// MiB of each GPU that this process sees, in its order: in use, free. `None`, said aloud, where it cannot be
/// found out.
pub(crate) fn of_gpus(test: &str) -> Option<Vec<(u64, u64)>> {
    let query = ["--query-gpu=pci.bus_id,memory.used,memory.free", "--format=csv,noheader,nounits"];
    let answer = Command::new("nvidia-smi").args(query).output();
    let text = match &answer {
        Ok(answer) if answer.status.success() => String::from_utf8_lossy(&answer.stdout),
        _ => {
            crate::skip(&format!("{test}, memory"), "no nvidia-smi tells how much is in use");
            return None;
        }
    };
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').map(str::trim).collect()).collect();
    let of = |place: &str| {
        // `0000:1b:00.0` here, `00000000:1B:00.0` there.
        let line = lines.iter().find(|line| line[0].to_ascii_lowercase().ends_with(place))?;
        Some((line.get(1)?.parse().ok()?, line.get(2)?.parse().ok()?))
    };
    rushmem::gpus().unwrap().iter().map(|gpu| of(&gpu.pci_bus_id.to_ascii_lowercase())).collect()
}

/// MiB in use on all of them.
pub(crate) fn in_use(test: &str) -> Option<u64> {
    Some(of_gpus(test)?.iter().map(|(used, _)| used).sum())
}
