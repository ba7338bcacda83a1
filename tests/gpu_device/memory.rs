//! How much of a GPU's memory is in use, as somebody else sees it.

use std::process::Command;

/// MiB of the first GPU that these tests use: in use, free. `None`, said aloud, where nobody tells.
pub(crate) fn of_the_gpu(test: &str) -> Option<(u64, u64)> {
    let wish = std::env::var("RUSHMEM_DEVICE").unwrap_or_default();
    let number: usize = wish.strip_prefix("cuda:").and_then(|number| number.parse().ok()).unwrap_or(0);
    let gpu = rushmem::gpus().unwrap().into_iter().nth(number)?;
    let query = ["--query-gpu=pci.bus_id,memory.used,memory.free", "--format=csv,noheader,nounits"];
    let answer = Command::new("nvidia-smi").args(query).output();
    let text = match &answer {
        Ok(answer) if answer.status.success() => String::from_utf8_lossy(&answer.stdout),
        _ => {
            crate::skip(test, "no nvidia-smi tells how much memory is in use");
            return None;
        }
    };
    // `0000:1b:00.0` here, `00000000:1B:00.0` there.
    let place = gpu.pci_bus_id.to_ascii_lowercase();
    text.lines().find_map(|line| {
        let mut fields = line.split(',').map(str::trim);
        fields.next().filter(|bus| bus.to_ascii_lowercase().ends_with(&place))?;
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    })
}
