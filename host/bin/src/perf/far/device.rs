//! Between the memories of two devices that are not mapped, GPUs first of all, by every way there is: through
//! staging buffers, over whatever UCX finds and over tcp, and by a UCX that was built with CUDA. The same
//! operations by the host and by kernels; nothing else measures the same, so the figures stand alone.
//!
//! A way that is missing is reported and left out; one that fails loses only its own later figures.

use std::fs::File;
use std::path::Path;

use super::device_pe::Found;
use super::{pair, two_hosts};
use crate::args::FarArgs;
use crate::job::{Failure, Result};
use crate::progress::Progress;
use crate::report::Row;
use crate::stats::Summary;

/// Seconds that the job of one way may take.
const JOB_LIMIT_S: u32 = 90;

/// A way, and the environment that makes PEs take it.
struct Way {
    name: &'static str,
    environment: Vec<(&'static str, String)>,
}

fn ways(args: &FarArgs, gpus: bool) -> Vec<Way> {
    let set =
        |list: &[(&'static str, &str)]| list.iter().map(|(k, v)| (*k, (*v).to_owned())).collect::<Vec<_>>();
    // Kernels post to the queues of a software card, instead of to the proxy's ring. It is not to be late on
    // purpose.
    let queue = || Way {
        name: "queue, software card",
        environment: set(&[("RUSHMEM_TRANSPORT", "queue-emulated"), ("RUSHMEM_FAKE_DELAY", "0")]),
    };
    if !gpus {
        return vec![
            Way { name: "any", environment: Vec::new() },
            Way { name: "tcp", environment: set(&[("UCX_TLS", "tcp")]) },
            queue(),
        ];
    }
    let mut ways = vec![
        Way { name: "bounce", environment: set(&[("RUSHMEM_FAR_GPU", "bounce")]) },
        queue(),
        Way { name: "bounce, tcp", environment: set(&[("RUSHMEM_FAR_GPU", "bounce"), ("UCX_TLS", "tcp")]) },
    ];
    match &args.ucx_cuda {
        Some(path) if path.exists() => {
            let library = std::path::absolute(path).unwrap_or_else(|_| path.clone()).display().to_string();
            let environment = [("RUSHMEM_FAR_GPU", "ucx".to_owned()), ("RUSHMEM_UCX_LIB", library)].to_vec();
            ways.push(Way { name: "UCX with CUDA", environment });
        }
        Some(path) => eprintln!("SKIP far: no UCX with CUDA in {} (scripts/ucx-cuda)", path.display()),
        None => eprintln!("SKIP far: no UCX with CUDA was named (--ucx-cuda)"),
    }
    ways
}

/// Measures every way.
pub(super) fn measure(
    args: &FarArgs,
    rows: &mut Vec<Row>,
    about: &mut Vec<String>,
    missing: &mut Vec<String>,
) -> Result<()> {
    let gpus = crate::gpu::count()?;
    if gpus == 1 {
        eprintln!("SKIP far: one GPU is here, which its PEs share: latencies are its time slices'");
    }
    let mut ways = ways(args, gpus > 0);
    // Nobody waits for the network while a batch is posted.
    ways.retain(|way| !(args.posts && way.name.ends_with("tcp")));
    let progress = Progress::new(ways.len());
    for way in ways {
        let (found, went_wrong) = start(&way, args)?;
        progress.step(format!("{} between devices", way.name));
        about.push(format!("{}: {} ({})", way.name, found.reason, found.device));
        for figure in found.figures {
            let name = format!("{} ({})", figure.name, way.name);
            match (Summary::of(figure.samples), figure.failed) {
                (Some(summary), None) => {
                    rows.push(Row::new(&name, Some(figure.bytes), 2, &figure.unit, summary))
                }
                (_, why) => missing.push(format!(
                    "there is no {name} of {} bytes: {}",
                    figure.bytes,
                    why.unwrap_or_default()
                )),
            }
        }
        missing.extend(went_wrong.map(|why| format!("{}: {why}", way.name)));
    }
    Ok(())
}

/// One job; what it has found, and why it found no more.
fn start(way: &Way, args: &FarArgs) -> Result<(Found, Option<String>)> {
    let folder = tempfile::tempdir()?;
    let said = folder.path().join("said");
    let mut command = two_hosts(args, "far-device-pe", folder.path(), JOB_LIMIT_S)?;
    command.args(["--samples", &args.samples.to_string()]);
    command.args(args.posts.then_some("--posts"));
    command.env("RUSHMEM_TRANSPORT", "ucx").env("RUSHMEM_WAIT_TIMEOUT", "20");
    command.envs(way.environment.iter().map(|(name, value)| (*name, value.as_str())));
    command.stderr(File::create(&said)?);
    let status = command.status().map_err(|e| Failure::new(format!("cannot start the PEs: {e}")))?;
    let found = std::fs::read(pair::found(folder.path())).ok();
    let found = found.map_or(Ok(Found::default()), |text| serde_json::from_slice(&text))?;
    let why = (!status.success()).then(|| format!("the job ended with {status}:\n{}", end_of(&said)));
    Ok((found, why))
}

/// The last lines of what the PEs wrote.
fn end_of(file: &Path) -> String {
    let text = String::from_utf8_lossy(&std::fs::read(file).unwrap_or_default()).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(12)..].join("\n")
}
